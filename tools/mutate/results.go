package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// A record is a mutant's verdict, a line of the results file.
type record struct {
	ID          string  `json:"id"`
	Hash        string  `json:"hash"` // of the file and the change: an edit makes a new mutant
	Verdict     string  `json:"verdict"`
	Then        string  `json:"then,omitempty"` // the second command, if it ran
	TestSeconds float64 `json:"test_seconds"`
	ThenSeconds float64 `json:"then_seconds,omitempty"`
	Source      string  `json:"source"`
	Replacement string  `json:"replacement"`
}

func newRecord(m mutant, verdict string) record {
	return record{ID: m.id(), Hash: m.hash, Verdict: verdict, Source: m.source, Replacement: m.replacement}
}

// results is the file of verdicts; without a name it keeps nothing.
type results struct {
	file  *os.File
	known map[string]record // by hash and id; the last line of a mutant counts
}

func openResults(name string) (*results, error) {
	r := &results{known: map[string]record{}}
	if name == "" {
		return r, nil
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	r.file = f
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		var rec record
		if err := json.Unmarshal(lines.Bytes(), &rec); err != nil {
			f.Close()
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		r.known[rec.Hash+rec.ID] = rec
	}
	return r, errors.Join(lines.Err())
}

// find returns the record of m, and whether m is done. A survivor that the command then has not seen is
// not done, nor is any survivor with retry.
func (r *results) find(m mutant, then string, retry bool) (record, bool) {
	rec, ok := r.known[m.hash+m.id()]
	switch {
	case !ok || retry && rec.Verdict == survived:
		return record{}, false
	case rec.Verdict == survived && then != "" && rec.Then != then:
		return rec, false
	}
	return rec, true
}

func (r *results) write(rec record) error {
	if r.file == nil {
		return nil
	}
	b, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	_, err = r.file.Write(append(b, '\n'))
	return err
}

func (r *results) close() {
	if r.file != nil {
		r.file.Close()
	}
}
