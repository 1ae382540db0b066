package llama

// #include "ggml-cpu.h"
// #include "shim.h"
import "C"

import "quern/engine/internal/kernel"

// compiledBackends are the backends in this binary; cgo_cuda.go adds its own.
var compiledBackends = []string{"CPU"}

// Backends are the backends that are compiled in. It starts none of them.
func Backends() []string { return append([]string(nil), compiledBackends...) }

// Device is ggml_backend_dev_t, described.
type Device struct {
	Name, Description string
	Free, Total       uint64 // bytes
	GPU               bool
}

// Devices are the devices of all backends (ggml_backend_dev_get). It starts the backends.
func Devices() []Device {
	Init()
	devices := make([]Device, C.ggml_backend_dev_count())
	for i := range devices {
		dev := C.ggml_backend_dev_get(C.size_t(i))
		var free, total C.size_t
		C.ggml_backend_dev_memory(dev, &free, &total)
		kind := C.ggml_backend_dev_type(dev)
		devices[i] = Device{
			Name:        C.GoString(C.ggml_backend_dev_name(dev)),
			Description: C.GoString(C.ggml_backend_dev_description(dev)),
			Free:        uint64(free),
			Total:       uint64(total),
			GPU:         kind == C.GGML_BACKEND_DEVICE_TYPE_GPU || kind == C.GGML_BACKEND_DEVICE_TYPE_IGPU,
		}
	}
	return devices
}

// Kernels are the names of our own kernels that Init hands to ggml on this processor. It starts nothing.
func Kernels() []string { return kernel.Names() }

// CPUFeatures are the instruction sets that ggml's CPU backend was compiled for (ggml_cpu_has_…). It starts nothing.
func CPUFeatures() []string {
	features := []struct {
		name string
		has  C.int
	}{
		{"SSE3", C.ggml_cpu_has_sse3()}, {"SSSE3", C.ggml_cpu_has_ssse3()}, {"AVX", C.ggml_cpu_has_avx()},
		{"AVX2", C.ggml_cpu_has_avx2()}, {"F16C", C.ggml_cpu_has_f16c()}, {"FMA", C.ggml_cpu_has_fma()},
		{"BMI2", C.ggml_cpu_has_bmi2()}, {"AVX_VNNI", C.ggml_cpu_has_avx_vnni()},
		{"AVX512", C.ggml_cpu_has_avx512()}, {"AVX512_VBMI", C.ggml_cpu_has_avx512_vbmi()},
		{"AVX512_VNNI", C.ggml_cpu_has_avx512_vnni()}, {"AVX512_BF16", C.ggml_cpu_has_avx512_bf16()},
		{"AMX_INT8", C.ggml_cpu_has_amx_int8()},
		{"NEON", C.ggml_cpu_has_neon()}, {"ARM_FMA", C.ggml_cpu_has_arm_fma()}, {"DOTPROD", C.ggml_cpu_has_dotprod()},
		{"MATMUL_INT8", C.ggml_cpu_has_matmul_int8()}, {"SVE", C.ggml_cpu_has_sve()}, {"SME", C.ggml_cpu_has_sme()},
	}
	var out []string
	for _, f := range features {
		if f.has != 0 {
			out = append(out, f.name)
		}
	}
	return out
}
