package journalfile

import (
	"bytes"
	"encoding/csv"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/api"
)

// Formats are those of every program.
func Formats() []backend.JournalFormat {
	return []backend.JournalFormat{
		{Name: "ndjson", Block: ndjson},
		{Name: "csv", Head: []byte("key,time,counter,delta,part,sender\n"), Block: comma},
	}
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
		text(`,"time":`, api.FormatTime(e.Time))
		text(`,"counter":`, e.Counter)
		dst = strconv.AppendInt(append(dst, `,"delta":`...), e.Delta, 10)
		if text(`,"part":`, e.Part); e.Sender != "" {
			text(`,"sender":`, e.Sender)
		}
		dst = append(dst, '}', '\n')
	}
	return dst, nil, err
}

// comma writes rows of CSV. A sender that is not known is empty.
func comma(dst []byte, _ int64, entries []client.JournalEntry) (_, note []byte, err error) {
	out := bytes.NewBuffer(dst)
	rows := csv.NewWriter(out)
	for i := range entries {
		e := &entries[i]
		row := [...]string{e.Key, api.FormatTime(e.Time), e.Counter, strconv.FormatInt(e.Delta, 10), e.Part, e.Sender}
		_ = rows.Write(row[:]) // Flush keeps the first error of all writes
	}
	rows.Flush()
	return out.Bytes(), nil, rows.Error()
}
