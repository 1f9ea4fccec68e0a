package api

import (
	"net/http"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/auth"
)

var operationRoutes = []route{
	{
		op: "createBackup", method: http.MethodPost, path: "/v1/backup", role: everywhere,
		need:   auth.Whole(auth.Admin),
		says:   "Take a backup",
		more:   "Copies a `pebble:` store, while it goes on counting, to the server's `--backup-root` or to a path below it. Only files that the target does not have are sent. A backup is whole or does not exist. Every increment accepted before the call is in it. The call takes up to 10 minutes; a repeat continues where it ended. If the answer is not 200, there may be a backup. Without `--backup-root` the call is refused with 501.",
		body:   backupBody,
		out:    gives("The backup is whole: `countmill restore` writes it to a directory.", client.Backup{}),
		fails:  fails{409: "Busy", 501: "NotSupported"},
		within: backupTimeout, answer: (*API).backup,
	},
	{
		op: "getHealth", method: http.MethodGet, path: "/healthz", role: everywhere,
		need: auth.Anyone,
		says: "Does the process answer?",
		more: "Checks nothing outside the process.",
		out:  gives("It does.", client.Status{}),
		free: true, answer: (*API).healthz,
	},
	{
		op: "getReadiness", method: http.MethodGet, path: "/readyz", role: everywhere,
		need:  auth.Anyone,
		says:  "Can the roles do their work?",
		more:  "503 with the reason if a role lacks something that it needs (publisher: bus; aggregator: bus and store; reader: store). If something is missing that the role can do without (the cache, disk space, room for dead letters, a valid file of tokens), the answer is 200 and `degraded`. If the server has tokens, a caller without one sees only the name of the part.",
		out:   gives("They can.", client.Status{}),
		fails: fails{503: "NotReady"},
		free:  true, within: readyTimeout, answer: (*API).readyz,
	},
	{
		op: "getMetrics", method: http.MethodGet, path: "/metrics", role: onMetrics,
		need:  auth.Whole(auth.Metrics),
		says:  "Metrics for Prometheus",
		more:  "They are of all counters: a token that is limited to prefixes is refused.",
		out:   success{says: "Metrics.", as: []media{{kind: "text/plain"}}},
		fails: fails{503: "Too many requests for metrics at once, or they took too long."},
		free:  true, within: forever, writes: (*API).metrics,
	},
	{
		op: "getDocument", method: http.MethodGet, path: "/openapi.json", role: everywhere,
		need: auth.Anyone,
		says: "This document",
		out:  gives("This document.", "Document"),
		free: true, within: forever, writes: (*API).openAPI,
	},
}
