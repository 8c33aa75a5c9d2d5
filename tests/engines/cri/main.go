// cri calls one method of the Kubernetes container runtime interface.
//
//	cri SOCKET RuntimeService/Version <request.json >response.json
//
// Requests and responses are protobuf's JSON form of the messages in k8s.io/cri-api. An engine's
// error message goes to stderr as the kubelet would see it, with exit status 1.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
	_ "k8s.io/cri-api/pkg/apis/runtime/v1" // registers the messages and services
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: cri SOCKET SERVICE/METHOD <request.json")
		os.Exit(2)
	}
	if err := call(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, status.Convert(err).Message())
		os.Exit(1)
	}
}

func call(socket, path string) error {
	service, name, _ := strings.Cut(path, "/")
	descriptor, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("runtime.v1." + service))
	if err != nil {
		return fmt.Errorf("no service %q: %w", service, err)
	}
	found, ok := descriptor.(protoreflect.ServiceDescriptor)
	if !ok {
		return fmt.Errorf("%q is no service", service)
	}
	method := found.Methods().ByName(protoreflect.Name(name))
	if method == nil {
		return fmt.Errorf("no method %q in %s", name, service)
	}
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	request := dynamicpb.NewMessage(method.Input())
	if err := protojson.Unmarshal(input, request); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	response := dynamicpb.NewMessage(method.Output())
	if err := conn.Invoke(ctx, "/"+string(found.FullName())+"/"+name, request, response); err != nil {
		return err
	}
	output, err := protojson.Marshal(response)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(append(output, '\n'))
	return err
}
