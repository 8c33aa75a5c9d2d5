//go:build !old

package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// noop is a driver whose devices need nothing done: what a pod with a claim takes at least.
type noop struct{}

const (
	noopDriver  = "noop.divvy.dev"
	noopDevices = 8
)

func init() {
	programs["noop-driver"] = func() *cobra.Command {
		return &cobra.Command{
			Use:  "noop-driver NODE KUBECONFIG",
			Args: cobra.ExactArgs(2),
			RunE: func(_ *cobra.Command, args []string) error { return serveNoop(args[0], args[1]) },
		}
	}
}

// serveNoop runs it as this node until it is killed.
func serveNoop(node, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	// The client's own rate limit would count as the driver's time.
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	dir := "/var/lib/kubelet/plugins/" + noopDriver
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	ctx := context.Background()
	helper, err := kubeletplugin.Start(ctx, noop{},
		kubeletplugin.DriverName(noopDriver),
		kubeletplugin.NodeName(node),
		kubeletplugin.KubeClient(client),
		kubeletplugin.Serialize(false),
		kubeletplugin.HealthService(false),
		kubeletplugin.PluginDataDirectoryPath(dir))
	if err != nil {
		return err
	}
	var devices []resourceapi.Device
	for i := range noopDevices {
		devices = append(devices, resourceapi.Device{Name: fmt.Sprintf("noop-%d", i)})
	}
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: devices}}}
	resources := resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}}
	if err := helper.PublishResources(ctx, resources); err != nil {
		return err
	}
	select {}
}

func (noop) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	prepared := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		var result kubeletplugin.PrepareResult
		for _, device := range claim.Status.Allocation.Devices.Results {
			if device.Driver == noopDriver {
				result.Devices = append(result.Devices, kubeletplugin.Device{
					Requests: []string{device.Request}, PoolName: device.Pool, DeviceName: device.Device,
				})
			}
		}
		prepared[claim.UID] = result
	}
	return prepared, nil
}

func (noop) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	ended := map[types.UID]error{}
	for _, claim := range claims {
		ended[claim.UID] = nil
	}
	return ended, nil
}

func (noop) HandleError(_ context.Context, err error, message string) {
	fmt.Fprintf(os.Stderr, "noop: %s: %v\n", message, err)
}

func (noop) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}
