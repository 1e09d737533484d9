package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// client asks a running service over its HTTP API, as any other caller would.
type client struct {
	base, tokenFile string
	output          string
	formats         []string // that -o may name; nil where there is no -o
	cluster         string
}

// reaching adds the flags that say where the service is.
func reaching(cmd *cobra.Command) *client {
	c := &client{}
	f := cmd.Flags()
	base := os.Getenv("SPILLWAY_URL")
	if base == "" {
		base = "http://127.0.0.1:8470"
	}
	f.StringVar(&c.base, "api", base, "address of the service (or SPILLWAY_URL)")
	f.StringVar(&c.tokenFile, "token-file", os.Getenv("SPILLWAY_TOKEN_FILE"), "file with the service's token (or SPILLWAY_TOKEN_FILE)")
	return c
}

// asking adds the flags every question has.
func asking(cmd *cobra.Command) *client {
	c := reaching(cmd)
	c.formats = []string{"table", "json"}
	cmd.Flags().StringVar(&c.cluster, "cluster", "", "only this cluster")
	outputFlag(cmd, &c.output)
	return c
}

func outputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "table", "table or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
}

// checkOutput says what -o may name where it names something else.
func checkOutput(output string, formats ...string) error {
	if !slices.Contains(formats, output) {
		return usageError("output %q: write %s", output, strings.Join(formats, " or "))
	}
	return nil
}

// The largest answer a command reads.
const maxAnswer = 64 << 20

// get asks one question and decodes its answer.
func (c *client) get(ctx context.Context, path string, query url.Values, into any) error {
	if c.cluster != "" {
		query.Set("cluster", c.cluster)
	}
	return c.ask(ctx, http.MethodGet, path+"?"+query.Encode(), nil, into, refusal)
}

// ask sends one question, with a body if that is not nil, and decodes its answer; refused makes an error of any other.
func (c *client) ask(ctx context.Context, method, path string, body []byte, into any, refused func(base string, resp *http.Response, body []byte) error) error {
	if c.formats != nil {
		if err := checkOutput(c.output, c.formats...); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.base, "/")+path, bytes.NewReader(body))
	if err != nil {
		return usageError("api address %q: %w", c.base, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.tokenFile != "" {
		token, err := os.ReadFile(c.tokenFile)
		if err != nil {
			return fmt.Errorf("read the token: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return &exitError{exitUnreachable, fmt.Errorf("ask %s: %w: is `spillway up` running there? --api names another address", c.base, err)}
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.base, err)
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return refused(c.base, resp, answer)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("the answer of %s is not one of this version's: %w", c.base, err)
	}
	return nil
}

// refusal turns a problem+json answer into an error with the exit code that fits.
func refusal(base string, resp *http.Response, body []byte) error {
	var problem struct {
		Detail string
		Errors []struct{ Location, Message string } // what is wrong with which parameter
	}
	if err := json.Unmarshal(body, &problem); err != nil || problem.Detail == "" {
		problem.Detail = fmt.Sprintf("%s answered %s", base, resp.Status)
	}
	var wrong []string
	for _, e := range problem.Errors {
		wrong = append(wrong, strings.TrimPrefix(e.Location+": "+e.Message, ": "))
	}
	if len(wrong) > 0 {
		problem.Detail += ": " + strings.Join(wrong, "; ")
	}
	err := errors.New(printable(problem.Detail))
	switch resp.StatusCode {
	case http.StatusNotFound:
		return &exitError{exitNotFound, err}
	case http.StatusUnauthorized:
		return &exitError{exitUsage, fmt.Errorf("%w: name the file that holds its token with --token-file or SPILLWAY_TOKEN_FILE", err)}
	case http.StatusUnprocessableEntity, http.StatusBadRequest, http.StatusConflict:
		return &exitError{exitUsage, err}
	}
	return err
}

// printJSON writes an answer as the API gave it, indented.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
