package httpserver

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestIsLocalName(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST:8080": true, "127.0.0.1:8080": true, "127.0.0.1": true, "10.0.0.7:80": true,
		"[::1]:8080": true, "[::1]": true, "[fe80::1%25eth0]:80": true, "": true,
		"evil.example": false, "evil.example:8080": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false,
		"xlocalhost": false, "localhost.": false, "127.1": false, "[evil.example]:80": false,
	} {
		if got := isLocalName(host); got != want {
			t.Errorf("%q: got %t, want %t", host, got, want)
		}
	}
}

func TestOnlyThisMachine(t *testing.T) {
	t.Parallel()
	h := OnlyThisMachine(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), nil)
	for from, want := range map[string]int{
		"127.0.0.1:1": 200, "127.9.9.9:1": 200, "[::1]:1": 200, "@": 200, "": 200, // sockets of the file system have no address
		"10.0.0.1:1": 403, "[2001:db8::1]:1": 403, "[fe80::1%eth0]:1": 403, "[::]:1": 403, "localhost:1": 403,
	} {
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		r.RemoteAddr = from
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("from %q: got %d, want %d", from, w.Code, want)
		}
	}
}
