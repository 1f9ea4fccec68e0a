// Package archtest holds tests about the whole repository: which package may import
// which, that every package says what it is for, the house rules that no linter knows,
// and that the commands in README.md and the pages of docs do what is shown there. It has no code of its own.
package archtest
