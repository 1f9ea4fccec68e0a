package backend

import "github.com/countmill/countmill/client"

// A JournalFormat makes a file of entries of the journal, block by block. The same blocks give the same bytes,
// in every process: a stopped export goes on with the next block.
type JournalFormat struct {
	// Name is the value of --format, and the end of a file's name after the dot.
	Name string
	// Head is the first bytes of each file.
	Head []byte
	// Block appends the bytes of a block to dst. The block begins at offset of the file. The note is for Tail,
	// and small.
	Block func(dst []byte, offset int64, entries []client.JournalEntry) (data, note []byte, err error)
	// Tail returns the last bytes of a file with the blocks of these notes. nil: a file ends with its last block.
	Tail func(notes [][]byte) ([]byte, error)
}
