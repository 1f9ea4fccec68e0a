package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A client is a package for another language: the files of a directory of the repository.
type client struct {
	language, ext string
	files         []string // patterns
	manifest      string   // the file with the version
	version       func(string) string
}

var clients = []client{
	{"python", ".tar.gz", []string{"pyproject.toml", "backend.py", "README.md", "countmill/*.py", "countmill/py.typed"}, "pyproject.toml", pythonVersion},
	{"js", ".tgz", []string{"package.json", "README.md", "countmill.mjs", "countmill.d.mts"}, "package.json", func(v string) string { return v }},
}

// pythonVersion is a version as Python orders them: 0.1.0-rc.1 is 0.1.0.dev0+rc.1, which comes before 0.1.0.
func pythonVersion(v string) string {
	number, rest, early := strings.Cut(v, "-")
	if !early {
		return number
	}
	return number + ".dev0+" + strings.Trim(regexp.MustCompile(`[^0-9A-Za-z]+`).ReplaceAllString(rest, "."), ".")
}

// pack writes the archive of a client into the directory of the release: pip and npm install it as it is.
func (c client) pack(r release) (name, hash string, err error) {
	version := strings.TrimPrefix(r.version, "v")
	files, err := c.contents(r.root, version)
	if err != nil {
		return "", "", err
	}
	folder := "countmill_" + version + "_" + c.language
	var out bytes.Buffer
	if err := packTar(&out, folder, files); err != nil {
		return "", "", err
	}
	name = folder + c.ext
	return name, fmt.Sprintf("%x", sha256.Sum256(out.Bytes())), os.WriteFile(filepath.Join(r.out, name), out.Bytes(), 0o644)
}

// contents are the files of the archive, with the version and the licence.
func (c client) contents(root, version string) ([]file, error) {
	licence, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	files := []file{{"LICENSE", 0o644, licence}}
	dir := filepath.Join(root, "client", c.language)
	for _, pattern := range c.files {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(paths) == 0 {
			return nil, fmt.Errorf("no file %s in %s: %w", pattern, dir, err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			name, err := filepath.Rel(dir, path)
			if err != nil {
				return nil, err
			}
			if name == c.manifest {
				data = bytes.Replace(data, []byte(`"0.0.0"`), []byte(`"`+c.version(version)+`"`), 1)
			}
			files = append(files, file{filepath.ToSlash(name), 0o644, data})
		}
	}
	return files, nil
}
