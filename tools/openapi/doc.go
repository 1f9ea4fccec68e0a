// Package openapi tests that clients can be generated from countmill's OpenAPI document. Its tests
// generate one for Go and one for TypeScript, compile both strictly, and use them to call a real server.
// Another one holds the types of client/js against its doc comments.
//
//	go -C tools/openapi test ./...
//
// It is a module of its own, so that the generators are no dependencies of countmill.
package openapi
