// Package journalfile writes the entries of a period of the journal to a file, over HTTP.
//
// A file is the head of its format and its entries. The bytes of an entry come from the entry alone. So every export of
// a period has the same bytes, however the server cuts its pages and wherever an earlier export was stopped.
//
// An export to FILE writes FILE.part, and renames it when it is whole. After every 100,000 entries FILE.countmill-export
// gets a line with the place up to which the entries are on the disk. A later export of the same period from the same
// server cuts FILE.part off there and goes on with the key after it. Nothing locks the files: only one export may write them.
package journalfile
