// go-lean is the CDI reference library at its leanest: no watcher, no schema, no YAML for the config.
// It does what the shim does: reads the bundle's config, injects the named devices, writes the config
// by temporary file and rename, and becomes the low-level runtime.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

const (
	config    = "/run/bundle/config.json"
	temporary = "/run/bundle/.config.json"
	runtime   = "/bench/empty"
)

func main() {
	if err := inject(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "go-lean:", err)
		os.Exit(1)
	}
	err := syscall.Exec(runtime, os.Args, os.Environ())
	fmt.Fprintln(os.Stderr, "go-lean:", err)
	os.Exit(127)
}

func inject(devices []string) error {
	bytes, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	var spec oci.Spec
	if err := json.Unmarshal(bytes, &spec); err != nil {
		return err
	}
	cache, err := cdi.NewCache(cdi.WithAutoRefresh(false))
	if err != nil {
		return err
	}
	if _, err := cache.InjectDevices(&spec, devices...); err != nil {
		return err
	}
	if bytes, err = json.Marshal(&spec); err != nil {
		return err
	}
	if err := os.WriteFile(temporary, bytes, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, config)
}
