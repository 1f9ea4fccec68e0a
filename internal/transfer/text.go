package transfer

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/text/encoding/unicode"
)

// A byteForm is a form that the bytes of a file may have, recognised by their beginning.
type byteForm struct {
	begins string // in which a NUL byte means itself, and ? any other byte
	utf16  bool
	open   func(io.Reader) (io.Reader, error)
}

// Compressed files are opened first, and once. Their content may be UTF-16.
var (
	compressions = []byteForm{
		{"\x1f\x8b", false, func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
		{"PK\x03\x04", false, cannot("a ZIP archive or a spreadsheet: unpack it, or save it as CSV")},
		{"\x28\xb5\x2f\xfd", false, cannot("compressed by zstd: unpack it, as with zstdcat")},
		{"\xfd7zXZ", false, cannot("compressed by xz: unpack it, as with xzcat")},
		{"BZh91AY&SY", false, cannot("compressed by bzip2: unpack it, as with bzcat")},
	}
	encodings = []byteForm{
		{"\xff\xfe", true, fromUTF16(unicode.LittleEndian)},
		{"\xfe\xff", true, fromUTF16(unicode.BigEndian)},
		{"?\x00", true, fromUTF16(unicode.LittleEndian)}, // without a byte order mark: UTF-8 has no NUL
		{"\x00?", true, fromUTF16(unicode.BigEndian)},
	}
)

func cannot(what string) func(io.Reader) (io.Reader, error) {
	return func(io.Reader) (io.Reader, error) { return nil, errors.New("it is " + what) }
}

func fromUTF16(e unicode.Endianness) func(io.Reader) (io.Reader, error) {
	return func(r io.Reader) (io.Reader, error) {
		return unicode.UTF16(e, unicode.IgnoreBOM).NewDecoder().Reader(r), nil
	}
}

// A text is a file's text in UTF-8. A byte order mark may be its first character.
type text struct {
	io.Reader
	plain bool // as the bytes of the file are
	// utf16: the file was UTF-16. Then U+FFFD replaces bytes that are not valid.
	utf16 bool
}

// openText recognises the form of a file by its first bytes.
func openText(r io.Reader) (*text, error) {
	t := &text{Reader: r, plain: true}
	for _, forms := range [][]byteForm{compressions, encodings} {
		if err := t.open(forms); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *text) open(forms []byteForm) error {
	b := bufio.NewReader(t.Reader)
	t.Reader = b
	head, err := b.Peek(16)
	if err != nil && err != io.EOF {
		return err
	}
	for _, f := range forms {
		if !f.matches(head) {
			continue
		}
		if t.Reader, err = f.open(b); err != nil {
			return fmt.Errorf("the file cannot be read: %w", err)
		}
		t.plain, t.utf16 = false, f.utf16
		return nil
	}
	return nil
}

func (f *byteForm) matches(head []byte) bool {
	if len(head) < len(f.begins) {
		return false
	}
	if !strings.Contains(f.begins, "?") {
		return bytes.HasPrefix(head, []byte(f.begins))
	}
	for i := range f.begins {
		if (f.begins[i] == 0) != (head[i] == 0) {
			return false
		}
	}
	return true
}
