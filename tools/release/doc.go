// Command release builds the archives of a release into a directory:
//
//	go -C tools run ./release -version v0.1.0 -out ../dist
//
// Each archive has the binary, LICENSE, the licences of all linked modules (LICENCES.txt), and the
// list of modules that the binary itself gives (MODULES.txt). SHA256SUMS has the checksum of each
// archive.
//
// The clients for Python and JavaScript are archives that pip and npm install.
//
// Every binary is built a second time, from a copy of the source in another directory. If the two
// differ in one byte, the command fails. With -fresh the second build begins with an empty build
// cache, so that the compiler runs twice as well as the linker.
//
// # How a binary is built
//
//	CGO_ENABLED=0     static: it runs on any Linux, also on an empty image
//	-trimpath         no path of the building machine is in it
//	-buildvcs=false   a clone, a work tree with changes and an unpacked archive of the source give
//	                  the same bytes; -version and -revision name them instead
//	-ldflags=-s       without the symbol table: a third smaller; stack traces and profiles still work
//	-tags=grpcnotrace without gRPC's debug pages, whose templates make the linker keep every method
package main
