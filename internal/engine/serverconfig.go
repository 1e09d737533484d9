package engine

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"text/template"
)

// The two accounts of an embedded server.
const (
	ownerUser  = "spillway"
	readerUser = "spillway_reader"
)

//go:embed config.xml.tmpl
var configTemplate string

//go:embed users.xml.tmpl
var usersTemplate string

// credentials are made once per data directory and kept beside the data, readable by their owner only.
type credentials struct {
	Owner  string `json:"owner"`
	Reader string `json:"reader"`
}

func loadCredentials(path string) (credentials, error) {
	var c credentials
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c = credentials{Owner: rand.Text(), Reader: rand.Text()}
		b, err := json.MarshalIndent(c, "", "  ")
		if err != nil {
			return c, fmt.Errorf("encode credentials: %w", err)
		}
		return c, writeFile(path, append(b, '\n'))
	case err != nil:
		return c, fmt.Errorf("read credentials: %w", err)
	}
	if err := json.Unmarshal(b, &c); err != nil || c.Owner == "" || c.Reader == "" {
		return c, &Error{Op: "read credentials", Kind: ErrCorruptData, Detail: path,
			Hint: "remove that file: new passwords are made at the next start"}
	}
	return c, nil
}

// writeFile replaces path in one step with content only its owner can read.
func writeFile(path string, content []byte) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, content, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// serverPaths are the places of one embedded server, all below its own directory.
type serverPaths struct {
	dir, data, config, users, credentials, log, output string
}

func pathsBelow(dir string) serverPaths {
	return serverPaths{
		dir:         dir,
		data:        filepath.Join(dir, "data"),
		config:      filepath.Join(dir, "config.xml"),
		users:       filepath.Join(dir, "users.xml"),
		credentials: filepath.Join(dir, "credentials.json"),
		log:         filepath.Join(dir, "server.log"),
		output:      filepath.Join(dir, "output.log"),
	}
}

// writeServerConfig writes config.xml and users.xml for one start on the given ports.
func writeServerConfig(p serverPaths, c ClickHouseConfig, cred credentials, tcpPort, httpPort int) error {
	secret, err := readSecret(c.ClusterSecretFile)
	if err != nil {
		return fmt.Errorf("engine.clickhouse.cluster_secret_file: %w", err)
	}
	shards := make([][]ClusterNode, 0, len(c.Nodes))
	index := map[int]int{}
	for _, n := range c.Nodes {
		i, ok := index[n.Shard]
		if !ok {
			i = len(shards)
			index[n.Shard] = i
			shards = append(shards, nil)
		}
		shards[i] = append(shards[i], n)
	}
	cluster := c.Cluster
	if len(shards) == 0 {
		cluster = ""
	}
	memory := c.MemoryLimitMB << 20
	err = render(p.config, configTemplate, map[string]any{
		"Path": p.data, "Users": p.users, "Log": p.log, "Listen": c.Listen, "TCPPort": tcpPort, "HTTPPort": httpPort,
		"MemoryBytes": memory, "CacheBytes": memory / 16,
		"Cluster": cluster, "ClusterSecret": secret, "Shards": shards,
	})
	if err != nil {
		return err
	}
	return render(p.users, usersTemplate, map[string]any{
		"Owner": ownerUser, "OwnerHash": hash(cred.Owner), "Reader": readerUser, "ReaderHash": hash(cred.Reader),
	})
}

func hash(password string) string {
	sum := sha256.Sum256([]byte(password))
	return hex.EncodeToString(sum[:])
}

func render(path, text string, data any) error {
	escape := func(s string) (string, error) {
		var b bytes.Buffer
		err := xml.EscapeText(&b, []byte(s))
		return b.String(), err
	}
	t, err := template.New(filepath.Base(path)).Funcs(template.FuncMap{"xml": escape}).Parse(text)
	if err != nil {
		return fmt.Errorf("parse template of %s: %w", filepath.Base(path), err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		return fmt.Errorf("fill template of %s: %w", filepath.Base(path), err)
	}
	if err := writeFile(path, b.Bytes()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
