package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"os"
	"time"
)

// A file of an archive.
type file struct {
	name string
	mode int64
	data []byte
}

// packed is the time of every file in an archive: the earliest that a zip can hold. With the time of the
// build each archive would have other bytes.
var packed = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// pack writes the files below a folder: a zip for Windows, a compressed tar for others.
func pack(t target, folder string, files []file) (ext string, data []byte, err error) {
	var out bytes.Buffer
	if t.os == "windows" {
		err = packZip(&out, folder, files)
		return ".zip", out.Bytes(), err
	}
	err = packTar(&out, folder, files)
	return ".tar.gz", out.Bytes(), err
}

func packZip(out *bytes.Buffer, folder string, files []file) error {
	w := zip.NewWriter(out)
	for _, f := range files {
		h := &zip.FileHeader{Name: folder + "/" + f.name, Method: zip.Deflate, Modified: packed}
		h.SetMode(os.FileMode(f.mode))
		entry, err := w.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := entry.Write(f.data); err != nil {
			return err
		}
	}
	return w.Close()
}

func packTar(out *bytes.Buffer, folder string, files []file) error {
	z, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{Name: folder + "/" + f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: packed, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(f.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return z.Close()
}
