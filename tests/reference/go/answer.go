package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// operations are all questions that can be asked.
var operations = map[string]func(*request) (reply, error){
	"parse":            parse,
	"inject":           inject,
	"list":             list,
	"normalise":        normalise,
	"name":             name,
	"annotations":      annotations,
	"annotation_key":   annotationKey,
	"annotation_value": annotationValue,
	"write":            write,
}

func answer(request *request) reply {
	operation, ok := operations[request.Op]
	if !ok {
		return reply{Error: fmt.Sprintf("bad request: no operation %q", request.Op)}
	}
	reply, err := operation(request)
	if err != nil {
		reply.Error = err.Error()
	}
	return reply
}

// parse reads and validates one document, as a cache does with a file.
func parse(request *request) (reply, error) {
	dir, err := os.MkdirTemp("", "reference-")
	if err != nil {
		return reply{}, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "spec.json")
	if err := os.WriteFile(path, request.Data, 0o600); err != nil {
		return reply{}, err
	}
	spec, err := cdi.ReadSpec(path, 0)
	if err != nil {
		return reply{}, errors.New(strings.ReplaceAll(err.Error(), dir+"/", ""))
	}
	text, err := json.Marshal(spec.Spec)
	if err != nil {
		return reply{}, err
	}
	minimum, err := specs.MinimumRequiredVersion(spec.Spec)
	return reply{Spec: text, Minimum: minimum}, err
}

func cache(request *request) (*cdi.Cache, error) {
	return cdi.NewCache(cdi.WithAutoRefresh(false), cdi.WithSpecDirs(request.Dirs...))
}

// inject answers with the config as the library left it, on an error too.
func inject(request *request) (reply, error) {
	cache, err := cache(request)
	if err != nil {
		return reply{}, err
	}
	var config oci.Spec
	if err := json.Unmarshal(request.Config, &config); err != nil {
		return reply{}, fmt.Errorf("bad config: %w", err)
	}
	unresolved, failure := cache.InjectDevices(&config, request.Devices...)
	text, err := json.Marshal(&config)
	if err != nil {
		return reply{}, err
	}
	return reply{Config: text, Unresolved: unresolved}, failure
}

// list answers with what the directories hold; a spec is shown as priority and path.
func list(request *request) (reply, error) {
	cache, err := cache(request)
	if err != nil {
		return reply{}, err
	}
	answer := reply{Devices: cache.ListDevices(), Errors: map[string][]string{}}
	for _, vendor := range cache.ListVendors() {
		for _, spec := range cache.GetVendorSpecs(vendor) {
			answer.Specs = append(answer.Specs, fmt.Sprintf("%d %s", spec.GetPriority(), spec.GetPath()))
		}
	}
	sort.Strings(answer.Specs)
	for path, causes := range cache.GetErrors() {
		for _, cause := range causes {
			answer.Errors[path] = append(answer.Errors[path], cause.Error())
		}
	}
	return answer, nil
}

// normalise takes a config through the same types that inject uses, so that what the types drop
// or leave out does not count as a difference.
func normalise(request *request) (reply, error) {
	var config oci.Spec
	if err := json.Unmarshal(request.Config, &config); err != nil {
		return reply{}, fmt.Errorf("bad config: %w", err)
	}
	text, err := json.Marshal(&config)
	return reply{Config: text}, err
}

func name(request *request) (reply, error) {
	vendor, class, device, err := parser.ParseQualifiedName(request.Name)
	if err != nil {
		return reply{}, err
	}
	return reply{Devices: []string{vendor, class, device}}, nil
}

func annotations(request *request) (reply, error) {
	_, devices, err := cdi.ParseAnnotations(request.Annotations)
	return reply{Devices: devices}, err
}

func annotationKey(request *request) (reply, error) {
	key, err := cdi.AnnotationKey(request.Plugin, request.Name)
	return reply{Text: key}, err
}

func annotationValue(request *request) (reply, error) {
	value, err := cdi.AnnotationValue(request.Devices)
	return reply{Text: value}, err
}

// write writes the document in Data under Name and answers with the file.
func write(request *request) (reply, error) {
	cache, err := cache(request)
	if err != nil {
		return reply{}, err
	}
	spec, err := cdi.ParseSpec(request.Data)
	if err != nil {
		return reply{}, err
	}
	if err := cache.WriteSpec(spec, request.Name); err != nil {
		return reply{}, err
	}
	path := filepath.Join(request.Dirs[len(request.Dirs)-1], request.Name)
	if extension := filepath.Ext(path); extension != ".json" && extension != ".yaml" {
		path += ".yaml"
	}
	info, err := os.Lstat(path)
	if err != nil {
		return reply{}, err
	}
	data, err := os.ReadFile(path)
	return reply{Data: data, Mode: fmt.Sprintf("%04o", info.Mode().Perm()), Path: path}, err
}
