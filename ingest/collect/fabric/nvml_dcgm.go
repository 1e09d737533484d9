//go:build dcgm

package fabric

import (
	"encoding/hex"
	"fmt"
	"os"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Built says why this program cannot ask NVML itself; nil = it can.
func Built() error { return nil }

// libraryEnv names the library to load in place of the driver's.
const libraryEnv = "SPILLWAY_NVML_LIBRARY"

func readNVML() ([]nvmlGPU, error) {
	var options []nvml.LibraryOption
	if path := os.Getenv(libraryEnv); path != "" {
		options = append(options, nvml.WithLibraryPath(path))
	}
	lib := nvml.New(options...)
	if ret := lib.Init(); ret != nvml.SUCCESS {
		return nil, fmt.Errorf("load NVML: %w; is the driver installed, and does the loader find libnvidia-ml.so.1?", ret)
	}
	defer func() { _ = lib.Shutdown() }()
	count, ret := lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("count the GPUs: %w", ret)
	}
	out := make([]nvmlGPU, 0, count)
	for i := range count {
		device, ret := lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			return nil, fmt.Errorf("find GPU %d: %w", i, ret) // one that is lost: half a list is none
		}
		uuid, ret := device.GetUUID()
		if ret != nvml.SUCCESS {
			return nil, fmt.Errorf("read the UUID of GPU %d: %w", i, ret)
		}
		g := nvmlGPU{Index: uint32(i), UUID: uuid}
		if err := g.readFabric(lib, device); err != nil {
			return nil, fmt.Errorf("read the fabric of GPU %d: %w", i, err)
		}
		out = append(out, g)
	}
	return out, nil
}

// readFabric asks in the newest way that the driver knows. A call that the driver's library does not have would end the
// process, so each is looked up first.
func (g *nvmlGPU) readFabric(lib nvml.Interface, device nvml.Device) error {
	has := func(symbol string) bool { return lib.Extensions().LookupSymbol(symbol) == nil }
	other := func(ret nvml.Return) bool {
		return ret == nvml.ERROR_ARGUMENT_VERSION_MISMATCH || ret == nvml.ERROR_FUNCTION_NOT_FOUND
	}
	if has("nvmlDeviceGetGpuFabricInfo_v4") {
		info, ret := device.GetGpuFabricInfo_v4()
		if !other(ret) {
			g.take(ret, info.State, info.Status, info.ClusterUuid, unicast(&info), &info.HealthMask)
			return failed(ret)
		}
	}
	if has("nvmlDeviceGetGpuFabricInfoV") {
		v3, ret := device.GetGpuFabricInfoV().V3()
		if !other(ret) {
			g.take(ret, v3.State, v3.Status, v3.ClusterUuid, &v3.CliqueId, &v3.HealthMask)
			return failed(ret)
		}
		v2, ret := device.GetGpuFabricInfoV().V2()
		if !other(ret) {
			g.take(ret, v2.State, v2.Status, v2.ClusterUuid, &v2.CliqueId, &v2.HealthMask)
			return failed(ret)
		}
	}
	if has("nvmlDeviceGetGpuFabricInfo") {
		v1, ret := device.GetGpuFabricInfo()
		if !other(ret) {
			g.take(ret, v1.State, v1.Status, v1.ClusterUuid, &v1.CliqueId, nil)
			return failed(ret)
		}
	}
	return nil // a driver from before 525, which tells nothing
}

// failed leaves out the answer of hardware that has no fabric.
func failed(ret nvml.Return) error {
	if ret == nvml.SUCCESS || ret == nvml.ERROR_NOT_SUPPORTED {
		return nil
	}
	return ret
}

func (g *nvmlGPU) take(ret nvml.Return, state uint8, status uint32, cluster [16]uint8, clique, mask *uint32) {
	if ret == nvml.ERROR_NOT_SUPPORTED {
		state = uint8(nvml.GPU_FABRIC_STATE_NOT_SUPPORTED)
		g.State = &state
		return
	}
	g.State, g.Status, g.CliqueID, g.HealthMask = &state, &status, clique, mask
	g.StatusText = nvml.Return(status).Error()
	g.ClusterUUID = hex.EncodeToString(cluster[:])
}

// unicast is the clique that NVLink memory is shared in: of several the first of that kind, which is what older drivers
// told as the only one. nil = the GPU is in none.
func unicast(info *nvml.GpuFabricInfo_v4) *uint32 {
	for _, c := range info.Cliques[:min(int(info.NumCliques), len(info.Cliques))] {
		if c.Type == 0 {
			return &c.Id
		}
	}
	return nil
}
