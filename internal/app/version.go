package app

import "runtime/debug"

// Version is which build this is.
type Version struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
}

// BuildVersion is the version that the Go tool wrote into the binary.
func BuildVersion() Version {
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
