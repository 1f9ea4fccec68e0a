// Package deploy has no code: it contains the Dockerfile, the Helm chart, Terraform for Google Cloud, the systemd
// unit, examples of proxies and the alerts, and tests that check them and docker-compose.yml against the binary.
package deploy
