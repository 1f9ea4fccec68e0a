package journalfile

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/internal/transfer"
)

// A Format makes the bytes of a file.
type Format struct {
	Name   string // the value of --format, and the end of a file's name after the dot
	Head   []byte // the first bytes of a file
	Append func(dst []byte, entries []client.JournalEntry) ([]byte, error)
}

// NDJSON has entries as GET /v1/journal has them, one a line.
func NDJSON() Format { return Format{Name: "ndjson", Append: ndjson} }

// CSV has rows, and a line of their columns.
func CSV() Format {
	return Format{Name: "csv", Head: []byte("key,time,counter,delta,part,sender\n"), Append: comma}
}

// Spreadsheet is CSV of which a spreadsheet runs no name, id or key as a formula.
func Spreadsheet() Format {
	return Format{Name: "csv --spreadsheet", Head: []byte("key,time,'counter,delta,'part,'sender\n"), Append: spreadsheet}
}

func ndjson(dst []byte, entries []client.JournalEntry) (_ []byte, err error) {
	text := func(field, value string) {
		if dst = append(dst, field...); err == nil {
			dst, err = jsontext.AppendQuote(dst, value)
		}
	}
	for i := range entries {
		e := &entries[i]
		text(`{"key":`, e.Key)
		text(`,"time":`, httpserver.FormatTime(e.Time))
		text(`,"counter":`, e.Counter)
		dst = strconv.AppendInt(append(dst, `,"delta":`...), e.Delta, 10)
		if text(`,"part":`, e.Part); e.Sender != "" {
			text(`,"sender":`, e.Sender)
		}
		dst = append(dst, '}', '\n')
	}
	return dst, err
}

// spreadsheet writes the text that clients chose in quotes: where the separator of spreadsheets is a semicolon, one in a
// name would begin another cell.
func spreadsheet(dst []byte, entries []client.JournalEntry) ([]byte, error) {
	for i := range entries {
		e := &entries[i]
		dst = fmt.Appendf(dst, "%s,%s,%s,%d,%s,%s\n", e.Key, httpserver.FormatTime(e.Time), transfer.Cell(e.Counter), e.Delta, transfer.Cell(e.Part), transfer.Cell(e.Sender))
	}
	return dst, nil
}

// comma writes rows of CSV. A sender that is not known is empty.
func comma(dst []byte, entries []client.JournalEntry) ([]byte, error) {
	out := bytes.NewBuffer(dst)
	rows := csv.NewWriter(out)
	for i := range entries {
		e := &entries[i]
		row := [...]string{e.Key, httpserver.FormatTime(e.Time), e.Counter, strconv.FormatInt(e.Delta, 10), e.Part, e.Sender}
		_ = rows.Write(row[:]) // Flush keeps the first error of all writes
	}
	rows.Flush()
	return out.Bytes(), rows.Error()
}
