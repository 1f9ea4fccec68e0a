package app

import (
	"cmp"
	"runtime/debug"
)

// Version is which build this is.
type Version struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
}

// A release's build sets both. The Go tool writes them into a binary only where it installs a published
// version, or builds in a git checkout.
var version, revision string

// BuildVersion is the version that the build of the release, or the Go tool, wrote into the binary.
func BuildVersion() Version {
	v := toolVersion()
	v.Version, v.Revision = cmp.Or(version, v.Version), cmp.Or(revision, v.Revision)
	return v
}

// toolVersion is the version that the Go tool wrote into the binary.
func toolVersion() Version {
	v := Version{Version: "unknown", Revision: "unknown", Go: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Go = info.GoVersion
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			v.Revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true" && v.Revision != "unknown":
			v.Revision += "+changes"
		}
	}
	return v
}
