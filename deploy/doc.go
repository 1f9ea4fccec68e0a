// Package deploy has no code: it contains the Dockerfile, and tests that check the Dockerfile and
// docker-compose.yml against the binary.
package deploy
