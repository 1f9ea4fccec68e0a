// Package journalfile writes the entries of a period of the journal to a file, over HTTP.
//
// A file is a head, blocks of entries and a tail. Blocks are cut by the entries alone: after 100,000 entries, or
// after 16 MiB of their names. So every export of a period has the same blocks, however the server cuts its pages and
// wherever an earlier export was stopped. A format (backend.JournalFormat) makes the bytes of a block from its
// entries and its offset only.
//
// An export to FILE writes FILE.part, and renames it when it is whole. FILE.countmill-export remembers each block
// that is on the disk, a line a block. A later export of the same period from the same server cuts FILE.part off after
// the last of them and goes on with the key after it. Nothing locks the files: only one export may write them.
//
// Parquet ends with a footer that has the place of each row group. So the state keeps a note of each block, and the
// footer is made of the notes: a stopped export repeats one row group at most, and its result is one file. A file for
// each period or number of entries would need no notes, and every reader would have to know of several files.
package journalfile
