// Package backup keeps copies of a store in a bucket, and restores them.
//
// A target is a place in a bucket:
//
//	backups/20261123T092201.123456Z-DATABASE-8f14e45fceea167a   a manifest: the files of one backup
//	files/SHA256                                                a file, named by its content
//	busy/OWNER                                                  somebody writes here now
//
// Backups share files. A table of the store never changes, so a backup sends the tables that are new
// since the last one, and a few small files.
//
// # What holds
//
// A backup is whole or not listed: the manifest is written last, when every file is in the bucket. Its
// name has a part of its own SHA-256, and it has the SHA-256 of each file. So damage is found when the backup is restored,
// and an object under a name in files/ is never one with other content.
//
// Only one process writes to a target at a time. Each puts a mark into busy/, and then looks for other
// marks: of two processes at least one sees the other, and gives up. Marks are renewed while the work
// goes on. If a mark was not renewed for ten minutes, its process has died. Ages are differences of two times
// of the bucket's clock.
//
// A target has backups of one database only: names of manifests have its id, and the process with the mark looks at them
// first. So nobody removes old backups of another database, and a list shows whose a backup is.
//
// Old backups are removed in this order: manifests, then files that no manifest names. With the mark, no
// other process can be about to name one of those files.
//
//	failure                         result
//	killed before the manifest      files that the next backup uses, or the next sweep removes
//	killed while removing           backups that are whole; the next sweep continues
//	killed while restoring          a directory of another name, which nobody takes for a copy
//	suspended for ten minutes       no backup of that process, if another one has removed its files
//	the root loses its mount        no backup until it is back; after a restart the directory below it is the root
//	a file of a backup is damaged   a restore that fails, and names the file; older backups may not need it
package backup
