package httpserver

import (
	_ "embed"
	"net/http"
	"strconv"
)

//go:embed openapi.json
var openAPI []byte

// OpenAPI serves the OpenAPI 3.1 document of the whole HTTP API, whichever roles this
// process runs. Package apitest keeps it true.
func OpenAPI() http.Handler {
	length := strconv.Itoa(len(openAPI))
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		header := w.Header()
		header["Content-Type"] = typeJSON
		header["X-Content-Type-Options"] = noSniff
		header.Set("Cache-Control", "no-cache")
		header.Set("Content-Length", length)
		w.Write(openAPI) // an error means that the client is gone
	})
}
