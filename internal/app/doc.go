// Package app turns flags, variables and URLs into running roles. The command and the
// end-to-end tests start the same thing:
//
//	Parse -> Config -> New (opens backends, binds the listener) -> Run(ctx) -> stop
//
// An App is a list of services: the roles, the backends, the server (service.go). Each adds its
// routes, its reasons for /readyz and its metrics, runs, and stops. A part that a process does not
// have is absent from its list. The list is in the one stop order (stop.go).
//
// There is one composition. `countmill up` asks for all roles, a single role for its
// own, and package embedded for all roles without a listener; nothing is wired twice.
//
// An error that matches ErrUsage means that the person who typed the command can fix it.
// Every other error is about the machine or the outside.
package app
