// Package deploy has no code: it is where the Dockerfile is, and the tests that hold it
// and docker-compose.yml against the binary.
package deploy
