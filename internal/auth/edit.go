package auth

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/countmill/countmill/internal/durable"
)

// Append adds a token to the file, which it makes if it is missing. It changes no file that a server
// would refuse. See edit for how the file is written.
func Append(path string, t Token) error {
	return edit(path, func(text []byte) ([]byte, error) {
		if n := len(text); n > 0 && text[n-1] != '\n' {
			text = append(text, '\n')
		}
		text = append(text, t.Line()+"\n"...)
		_, err := Parse(text)
		return text, err
	})
}

// Remove removes the token of a name from the file, and returns it. If several have the name, id has
// to begin the ID of one of them. All other lines stay as they are, tokens or not.
func Remove(path, name, id string) (removed Token, err error) {
	err = edit(path, func(text []byte) ([]byte, error) {
		entries := Entries(text)
		if removed, err = theOne(entries, name, id); err != nil {
			return nil, err
		}
		kept, from := make([]byte, 0, len(text)), 0
		for _, e := range entries {
			if e.Token.hash == removed.hash { // a token that is listed twice goes twice
				kept, from = append(kept, text[from:e.begin]...), e.end
			}
		}
		return append(kept, text[from:]...), nil
	})
	return removed, err
}

func theOne(entries []Entry, name, id string) (one Token, err error) {
	n := 0
	for _, e := range entries {
		if e.Err == nil && e.Token.Name == name && strings.HasPrefix(e.Token.hashDigits(), id) {
			one, n = e.Token, n+1
		}
	}
	switch n {
	case 0:
		which := strconv.Quote(name)
		if id != "" {
			which += " and has the ID " + strconv.Quote(id)
		}
		return one, fmt.Errorf("no token is named %s; \"countmill token list\" shows all", which)
	case 1:
		return one, nil
	}
	return one, fmt.Errorf("%d tokens have this name: name the ID of one, such as %s", n, one.ID())
}

// edit replaces the file by a changed one: whole, or not at all. The new file has the owner and the
// mode of the old one; without an old one its mode is 0600. Of two calls at once one gets an error.
func edit(path string, change func(text []byte) ([]byte, error)) (err error) {
	if target, err := filepath.EvalSymlinks(path); err == nil { // otherwise a file would replace the link
		path = target
	}
	// O_EXCL keeps other calls out from before the read to the end.
	next, err := os.OpenFile(path+".new", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s.new exists: another command changes the tokens. If none does, delete that file", path)
	}
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(next.Name()))
		}
	}()
	err = errors.Join(fill(next, path, change), next.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(next.Name(), path); err != nil {
		return err
	}
	return durable.SyncDir(os.Open, filepath.Dir(path))
}

// fill writes the changed text of the file at path into next.
func fill(next *os.File, path string, change func(text []byte) ([]byte, error)) error {
	text, err := ReadFile(path)
	exists := !errors.Is(err, fs.ErrNotExist)
	if err != nil && exists {
		return fmt.Errorf("%s: %w", path, err)
	}
	if text, err = change(text); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if exists {
		if err := keepOwner(next, path); err != nil {
			return err
		}
	}
	if _, err := next.Write(text); err != nil {
		return err
	}
	return next.Sync()
}
