package slurmjson

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// DecodeJobs reads a document with a list of jobs: squeue, scontrol show job, sacct, REST jobs, job, jobs/state and
// slurmdb jobs. It calls yield for each job as it is read; yield may keep the job. An error of yield ends the reading and
// is returned as it is.
//
// Any other error means that the document must be refused whole, with the jobs handed over before: a *DocumentError for a
// document cut short or malformed, a *ReportedError when Slurm itself reports errors. Only with a nil error, and with
// Meta.Unchanged false, do the jobs handed over make up the full answer.
func DecodeJobs(src io.Reader, yield func(*Job) error) (Meta, error) {
	return decode(src, "jobs", func(r *reader) error {
		j := r.job()
		if r.err == nil && j.JobID == 0 {
			r.fail(errors.New("the record has no job_id"))
		}
		if r.err != nil {
			return nil
		}
		return yield(j)
	})
}

// DecodeNodes reads a document of scontrol show node or REST nodes. It works as DecodeJobs does.
func DecodeNodes(src io.Reader, yield func(*Node) error) (Meta, error) {
	return decode(src, "nodes", func(r *reader) error {
		n := r.node()
		if r.err == nil && n.Name == "" {
			r.fail(errors.New("the record has no name"))
		}
		if r.err != nil {
			return nil
		}
		return yield(n)
	})
}

// DocumentError is a document that could not be read to its end.
type DocumentError struct {
	// Offset is the byte reached.
	Offset int64
	// Records is how many records were handed over before, and so the index of the record that could not be read.
	Records int
	// List is the name of the list of records.
	List string
	Err  error
}

// Error names the place and what to do.
func (e *DocumentError) Error() string {
	return fmt.Sprintf("read slurm document at byte %d, %s[%d]: %v; refuse the document whole, it is incomplete, and ask Slurm again",
		e.Offset, e.List, e.Records, e.Err)
}

// Unwrap returns the cause; io.ErrUnexpectedEOF for a document cut short.
func (e *DocumentError) Unwrap() error { return e.Err }

// ReportedError is a document in which Slurm reports that it could not answer.
type ReportedError struct{ Messages []Message }

// Error gives Slurm's own words.
func (e *ReportedError) Error() string {
	var words []string
	for _, m := range e.Messages {
		words = append(words, m.String())
	}
	return "slurm reports errors instead of an answer: " + strings.Join(words, "; ") + "; check the daemon it names, and ask again"
}

// String gives the parts the message has.
func (m Message) String() string {
	var parts []string
	for _, p := range []string{m.Source, m.Error, m.Description} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	s := strings.Join(parts, ": ")
	if m.Number != 0 {
		s += fmt.Sprintf(" (%d)", m.Number)
	}
	return s
}

// decode reads a document whose records are in the list of that name. Slurm prints the list before meta and warnings, so
// what those say is known only at the end.
func decode(src io.Reader, list string, record func(*reader) error) (Meta, error) {
	r := newDocument(src)
	var meta Meta
	var stopped error // by yield
	listed := false
	r.object(func(key string) {
		switch key {
		case list:
			if r.kind() != '[' {
				r.odd()
				return
			}
			listed = true
			r.array(func() {
				if err := record(r); err != nil {
					stopped = err
					r.err = err
				}
				if r.err == nil {
					meta.Records++
				}
			})
		case "meta":
			r.meta(&meta)
		case "warnings":
			r.messages(&meta.Warnings)
		case "errors":
			r.messages(&meta.Errors)
		case "last_update":
			meta.LastUpdate = r.time()
		default:
			r.skip()
		}
	})
	r.end()
	if len(r.unread) > 0 {
		meta.Unread = r.unread
	}
	if stopped != nil {
		return meta, stopped
	}
	if r.err == nil && len(meta.Errors) > 0 {
		return meta, &ReportedError{meta.Errors}
	}
	if r.err == nil && !listed {
		r.fail(fmt.Errorf("the document has no list %q", list))
	}
	if r.err != nil {
		return meta, &DocumentError{Offset: r.at, Records: meta.Records, List: list, Err: r.err}
	}
	for _, w := range meta.Warnings {
		if strings.Contains(w.Description, "changes since update_time") && meta.Records == 0 {
			meta.Unchanged = true
		}
	}
	return meta, nil
}

func (r *reader) meta(m *Meta) {
	r.object(func(key string) {
		switch key {
		case "plugin", "plugins":
			r.object(func(key string) {
				switch key {
				case "data_parser":
					m.DataParser = strings.TrimPrefix(r.word(), "data_parser/")
				case "type":
					// The oldest documents have no data_parser, but "openapi/v0.0.39" here.
					if _, v, ok := strings.Cut(r.word(), "v0.0."); ok && m.DataParser == "" {
						m.DataParser = "v0.0." + v
					}
				default:
					r.skip()
				}
			})
		case "slurm", "Slurm": // capital in v0.0.39
			r.object(func(key string) {
				switch key {
				case "cluster":
					m.Cluster = r.word()
				case "version":
					r.object(func(key string) {
						n := int(min(r.number().n, 1<<16))
						switch key {
						case "major":
							m.Slurm.Major = n
						case "minor":
							m.Slurm.Minor = n
						case "micro":
							m.Slurm.Micro = n
						}
					})
				default:
					r.skip()
				}
			})
		default:
			r.skip()
		}
	})
}

// messages reads a list of messages, which are objects, or plain strings in old versions.
func (r *reader) messages(out *[]Message) {
	r.array(func() {
		var m Message
		if r.kind() == '"' {
			m.Description = r.str()
		} else {
			r.object(func(key string) {
				switch key {
				case "description":
					m.Description = r.str()
				case "error":
					m.Error = r.str()
				case "source":
					m.Source = r.str()
				case "error_number", "errno", "error_code":
					m.Number = int(min(r.number().n, 1<<31-1))
				default:
					r.skip()
				}
			})
		}
		*out = append(*out, m)
	})
}
