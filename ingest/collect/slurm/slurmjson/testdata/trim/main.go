// Trim makes recorded Slurm documents small enough to keep: it empties the per-core "sockets" lists and keeps every other
// byte as Slurm printed it.
//
//	go run ./testdata/trim <recorded.json >testdata/recorded.json
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/go-json-experiment/json/jsontext"
)

func main() {
	if err := trim(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "trim:", err)
		os.Exit(1)
	}
}

func trim(in io.Reader, out io.Writer) error {
	doc, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	dec := jsontext.NewDecoder(bytes.NewReader(doc))
	var kept int64 // doc[:kept] is written
	for {
		tok, err := dec.ReadToken()
		switch {
		case errors.Is(err, io.EOF):
			_, err = out.Write(doc[kept:])
			return err
		case err != nil:
			return err
		}
		kind, n := dec.StackIndex(dec.StackDepth())
		if isName := kind == '{' && n%2 == 1; !isName || tok.Kind() != '"' || tok.String() != "sockets" || dec.PeekKind() != '[' {
			continue
		}
		val, err := dec.ReadValue()
		if err != nil {
			return err
		}
		end := dec.InputOffset()
		if _, err := fmt.Fprintf(out, "%s[]", doc[kept:end-int64(len(val))]); err != nil {
			return err
		}
		kept = end
	}
}
