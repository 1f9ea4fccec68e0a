// Package app turns flags, variables and URLs into running roles. The command and the
// end-to-end tests start the same thing:
//
//	Parse -> Config -> New (opens backends, binds the listener) -> Run(ctx) -> stop
//
// There is one composition. `countmill up` asks for all roles, a single role for its
// own; nothing is wired twice. There is one stop order, in stop.go.
//
// An error that matches ErrUsage means that the person who typed the command can fix it.
// Every other error is about the machine or the outside.
package app
