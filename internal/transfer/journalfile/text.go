package journalfile

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/internal/transfer"
)

// Formats are those of every program.
func Formats() []backend.JournalFormat {
	return []backend.JournalFormat{
		{Name: "ndjson", Block: ndjson},
		{Name: "csv", Head: []byte("key,time,counter,delta,part,sender\n"), Block: comma},
	}
}

// Spreadsheet is CSV of which a spreadsheet runs no name, id or key as a formula.
func Spreadsheet() backend.JournalFormat {
	return backend.JournalFormat{Name: "csv --spreadsheet", Head: []byte("key,time,'counter,delta,'part,'sender\n"), Block: spreadsheet}
}

// ndjson writes entries as GET /v1/journal has them, one a line.
func ndjson(dst []byte, _ int64, entries []client.JournalEntry) (_, note []byte, err error) {
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
	return dst, nil, err
}

// spreadsheet writes the text that clients chose in quotes: where the separator of spreadsheets is a semicolon, one in a
// name would begin another cell.
func spreadsheet(dst []byte, _ int64, entries []client.JournalEntry) (_, note []byte, err error) {
	for i := range entries {
		e := &entries[i]
		dst = fmt.Appendf(dst, "%s,%s,%s,%d,%s,%s\n", e.Key, httpserver.FormatTime(e.Time), transfer.Cell(e.Counter), e.Delta, transfer.Cell(e.Part), transfer.Cell(e.Sender))
	}
	return dst, nil, nil
}

// comma writes rows of CSV. A sender that is not known is empty.
func comma(dst []byte, _ int64, entries []client.JournalEntry) (_, note []byte, err error) {
	out := bytes.NewBuffer(dst)
	rows := csv.NewWriter(out)
	for i := range entries {
		e := &entries[i]
		row := [...]string{e.Key, httpserver.FormatTime(e.Time), e.Counter, strconv.FormatInt(e.Delta, 10), e.Part, e.Sender}
		_ = rows.Write(row[:]) // Flush keeps the first error of all writes
	}
	rows.Flush()
	return out.Bytes(), nil, rows.Error()
}
