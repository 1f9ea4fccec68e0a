// Package archtest tests the whole repository: which package may import which, that every package has a
// doc comment, the house rules that no linter knows, plain English in comments and messages, and that
// the commands in README.md and docs/operations.md have the output that they show. It has no code of
// its own.
package archtest
