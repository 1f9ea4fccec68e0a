// Package archtest has tests of the whole repository: which package may import which, package
// comments, house rules that no linter knows, and the commands in README.md and docs with their
// output. It has no code of its own.
package archtest
