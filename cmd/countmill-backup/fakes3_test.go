package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A fakeS3 has one bucket and the calls of S3 that backups need, as its API reference describes them. Lists
// have pages of three objects.
type fakeS3 struct {
	mu      sync.Mutex
	objects map[string]fakeObject
	uploads map[string]map[int][]byte
}

type fakeObject struct {
	data []byte
	at   time.Time
}

func newFakeS3() *fakeS3 {
	return &fakeS3{objects: make(map[string]fakeObject), uploads: make(map[string]map[int][]byte)}
}

func (f *fakeS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	if err != nil || !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=someone/") || r.Header.Get("Content-Encoding") != "" {
		http.Error(w, "not understood", http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	q := r.URL.Query()
	switch upload := q.Get("uploadId"); {
	case bucket != "bucket":
		answerXML(w, http.StatusNotFound, "<Error><Code>NoSuchBucket</Code></Error>")
	case key == "" && r.Method == http.MethodGet:
		f.list(w, q.Get("prefix"), q.Get("continuation-token"))
	case r.Method == http.MethodPost && q.Has("uploads"):
		id := strconv.Itoa(len(f.uploads) + 1)
		f.uploads[id] = make(map[int][]byte)
		answerXML(w, http.StatusOK, "<InitiateMultipartUploadResult><UploadId>"+id+"</UploadId></InitiateMultipartUploadResult>")
	case r.Method == http.MethodPut && upload != "":
		n, _ := strconv.Atoi(q.Get("partNumber"))
		f.uploads[upload][n] = data
		w.Header().Set("ETag", `"part"`)
	case r.Method == http.MethodPost:
		f.put(key, f.joined(upload))
		answerXML(w, http.StatusOK, `<CompleteMultipartUploadResult><ETag>"whole"</ETag></CompleteMultipartUploadResult>`)
	case r.Method == http.MethodDelete && upload != "":
		delete(f.uploads, upload)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPut:
		f.put(key, data)
		w.Header().Set("ETag", `"whole"`)
	case r.Method == http.MethodDelete:
		delete(f.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		f.get(w, key)
	default:
		http.Error(w, "not understood", http.StatusBadRequest)
	}
}

func (f *fakeS3) put(key string, data []byte) { f.objects[key] = fakeObject{data, time.Now()} }

func (f *fakeS3) joined(upload string) (data []byte) {
	parts := f.uploads[upload]
	for n := range len(parts) {
		data = append(data, parts[n+1]...)
	}
	return data
}

func (f *fakeS3) get(w http.ResponseWriter, key string) {
	o, ok := f.objects[key]
	if !ok {
		answerXML(w, http.StatusNotFound, "<Error><Code>NoSuchKey</Code></Error>")
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(o.data)))
	w.Header().Set("Last-Modified", o.at.UTC().Format(http.TimeFormat))
	w.Header().Set("ETag", `"whole"`)
	_, _ = w.Write(o.data) // the client notices
}

func (f *fakeS3) list(w http.ResponseWriter, prefix, after string) {
	var keys []string
	for key := range f.objects {
		if strings.HasPrefix(key, prefix) && key > after {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	more := len(keys) > 3
	keys = keys[:min(len(keys), 3)]
	var b strings.Builder
	fmt.Fprintf(&b, "<ListBucketResult><IsTruncated>%t</IsTruncated>", more)
	if more {
		fmt.Fprintf(&b, "<NextContinuationToken>%s</NextContinuationToken>", keys[2])
	}
	for _, key := range keys {
		o := f.objects[key]
		b.WriteString("<Contents><Key>")
		_ = xml.EscapeText(&b, []byte(key)) // a strings.Builder takes everything
		fmt.Fprintf(&b, `</Key><Size>%d</Size><LastModified>%s</LastModified><ETag>"whole"</ETag></Contents>`, len(o.data), o.at.UTC().Format(time.RFC3339))
	}
	b.WriteString("</ListBucketResult>")
	answerXML(w, http.StatusOK, b.String())
}

func answerXML(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, xml.Header+text) // the client notices
}
