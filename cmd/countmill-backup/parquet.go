package main

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/client"
)

// parquetMagic is at both ends of a file.
const parquetMagic = "PAR1"

// maxRowGroups is the most that a file can have: readers number them with 16 bits.
const maxRowGroups = math.MaxInt16

// parquetFormat writes a block as a row group. Its note is the footer of a file with this row group
// alone, and the tail is the footer of all.
func parquetFormat() backend.JournalFormat {
	return backend.JournalFormat{Name: "parquet", Head: []byte(parquetMagic), Block: rowGroup, Tail: footer}
}

// A row is an entry. Keys share their beginnings, and names repeat.
type row struct {
	Key     string `parquet:"key,delta"`
	Time    int64  `parquet:"time,timestamp(microsecond)"`
	Counter string `parquet:"counter,dict"`
	Delta   int64  `parquet:"delta"`
	Part    string `parquet:"part"`
	Sender  string `parquet:"sender,optional,dict"` // null if it is not known
}

// rowGroup takes the row group out of a file of these entries alone. The indexes of pages stay behind: they
// have places of that file.
func rowGroup(dst []byte, offset int64, entries []client.JournalEntry) (data, note []byte, err error) {
	alone, err := parquetFile(entries)
	if err != nil {
		return nil, nil, err
	}
	file, err := parquet.OpenFile(bytes.NewReader(alone), int64(len(alone)), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, nil, err
	}
	meta := *file.Metadata()
	if len(meta.RowGroups) != 1 {
		return nil, nil, fmt.Errorf("%d entries became %d row groups instead of one", len(entries), len(meta.RowGroups))
	}
	group := &meta.RowGroups[0]
	begin, end := int64(len(parquetMagic)), int64(0)
	for i := range group.Columns {
		c := &group.Columns[i]
		m := &c.MetaData
		first := m.DataPageOffset
		if m.DictionaryPageOffset > 0 {
			first = min(first, m.DictionaryPageOffset)
			m.DictionaryPageOffset += offset - begin
		}
		end = max(end, first+m.TotalCompressedSize)
		m.DataPageOffset += offset - begin
		c.OffsetIndexOffset, c.OffsetIndexLength, c.ColumnIndexOffset, c.ColumnIndexLength = 0, 0, 0, 0
	}
	group.FileOffset += offset - begin
	if note, err = thrift.Marshal(new(thrift.CompactProtocol), &meta); err != nil {
		return nil, nil, err
	}
	return append(dst, alone[begin:end]...), note, nil
}

// parquetFile returns a whole file.
func parquetFile(entries []client.JournalEntry) ([]byte, error) {
	var out bytes.Buffer
	w := parquet.NewGenericWriter[row](&out, parquet.Compression(&zstd.Codec{Level: zstd.SpeedDefault}))
	for some := range slices.Chunk(entries, 1000) {
		rows := make([]row, len(some))
		for i := range some {
			e := &some[i]
			rows[i] = row{e.Key, e.Time.UnixMicro(), e.Counter, e.Delta, e.Part, e.Sender}
		}
		if _, err := w.Write(rows); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// footer joins the footers of row groups, and ends the file.
func footer(notes [][]byte) ([]byte, error) {
	if len(notes) == 0 {
		empty, err := parquetFile(nil)
		if err != nil {
			return nil, err
		}
		return empty[len(parquetMagic):], nil
	}
	if len(notes) > maxRowGroups {
		return nil, fmt.Errorf("a file has %d row groups at most, and the period has %d: export shorter periods", maxRowGroups, len(notes))
	}
	var all format.FileMetaData
	for i, note := range notes {
		var one format.FileMetaData
		if err := thrift.Unmarshal(new(thrift.CompactProtocol), note, &one); err != nil {
			return nil, fmt.Errorf("row group %d: %w", i, err)
		}
		if len(one.RowGroups) != 1 {
			return nil, fmt.Errorf("row group %d: its note has %d", i, len(one.RowGroups))
		}
		one.RowGroups[0].Ordinal = int16(i)
		if i == 0 {
			all = one
			continue
		}
		all.RowGroups = append(all.RowGroups, one.RowGroups[0])
		all.NumRows += one.NumRows
	}
	out, err := thrift.Marshal(new(thrift.CompactProtocol), &all)
	if err != nil {
		return nil, err
	}
	length := uint32(len(out))
	out = append(out, byte(length), byte(length>>8), byte(length>>16), byte(length>>24))
	return append(out, parquetMagic...), nil
}
