package api

import "testing"

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
