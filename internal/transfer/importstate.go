package transfer

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/countmill/countmill/internal/durable"
)

// StateSuffix makes the name of a file's state of the file's own.
const StateSuffix = ".countmill-import"

// An importState is the facts of a file's first import that a second one needs:
// since when keys of it may be in a server. Which rows were counted is for the server to
// say, as it may have been restored from a backup, or be another one.
type importState struct {
	Cut      int       `json:"cut"`
	Form     string    `json:"form"`
	SHA256   string    `json:"sha256"`
	Began    time.Time `json:"began"`
	Token    string    `json:"token,omitempty"` // the hash of whose; empty for none
	Finished time.Time `json:"finished,omitzero"`
	Left     int64     `json:"left,omitempty"` // rows that were not counted by then
}

// ImportedAll returns the SHA-256 of a file whose import counted all rows, or an error.
func ImportedAll(path string) (sha256 string, err error) {
	state, fresh, err := loadState(path+StateSuffix, time.Time{})
	if err != nil {
		return "", err
	}
	if fresh || state.Finished.IsZero() {
		return "", errors.New("it was not imported to its end; do that first, by the same command as before")
	}
	if state.Left > 0 {
		return "", fmt.Errorf("%d of its rows were not counted: name a file whose rows were all counted", state.Left)
	}
	return state.SHA256, nil
}

// loadState reads the state in path. fresh: there is none, and the import begins now.
func loadState(path string, now time.Time) (s importState, fresh bool, err error) {
	s = importState{Cut: Cut, Began: now}
	if path == "" {
		return s, true, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, true, nil
	}
	if err != nil {
		return s, false, err
	}
	if err := json.Unmarshal(text, &s); err != nil || s.SHA256 == "" {
		return s, false, fmt.Errorf("%s is not the state of an import: it is in the way of one", path)
	}
	return s, false, nil
}

// hashToken distinguishes tokens and reveals none: they are random.
func hashToken(token string) string {
	if token == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:8])
}

// ending says how it went, as half a sentence.
func (s importState) ending() string {
	if s.Finished.IsZero() {
		return "did not come to its end"
	}
	return "ended " + s.Finished.Format(time.RFC3339)
}

// SaveState replaces the file in path by a state in JSON, durably. An empty path names no file.
func SaveState(path string, state any) error {
	if path == "" {
		return nil
	}
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	return WriteFile(path, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

// WriteFile replaces the file in path: all of it is there, durably, or nothing of it. The mode of a file stays. A new one has
// the mode that the umask leaves, as with a shell's >.
func WriteFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.OpenFile(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	var mode error
	if old, err := os.Stat(path); err == nil {
		mode = f.Chmod(old.Mode().Perm()) // before there is anything in it
	}
	if err := errors.Join(mode, write(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return durable.SyncDir(os.Open, filepath.Dir(path))
}
