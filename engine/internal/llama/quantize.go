package llama

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"fmt"
	"runtime/cgo"
	"strings"
	"unsafe"
)

// ftypes are the values of enum llama_ftype that llama_model_quantize takes, from small to large.
var ftypes = []struct {
	name string
	c    C.enum_llama_ftype
}{
	{"IQ1_S", C.LLAMA_FTYPE_MOSTLY_IQ1_S}, {"IQ1_M", C.LLAMA_FTYPE_MOSTLY_IQ1_M},
	{"TQ1_0", C.LLAMA_FTYPE_MOSTLY_TQ1_0}, {"TQ2_0", C.LLAMA_FTYPE_MOSTLY_TQ2_0},
	{"IQ2_XXS", C.LLAMA_FTYPE_MOSTLY_IQ2_XXS}, {"IQ2_XS", C.LLAMA_FTYPE_MOSTLY_IQ2_XS},
	{"IQ2_S", C.LLAMA_FTYPE_MOSTLY_IQ2_S}, {"IQ2_M", C.LLAMA_FTYPE_MOSTLY_IQ2_M},
	{"Q2_K_S", C.LLAMA_FTYPE_MOSTLY_Q2_K_S}, {"Q2_K", C.LLAMA_FTYPE_MOSTLY_Q2_K},
	{"IQ3_XXS", C.LLAMA_FTYPE_MOSTLY_IQ3_XXS}, {"IQ3_XS", C.LLAMA_FTYPE_MOSTLY_IQ3_XS},
	{"IQ3_S", C.LLAMA_FTYPE_MOSTLY_IQ3_S}, {"IQ3_M", C.LLAMA_FTYPE_MOSTLY_IQ3_M},
	{"Q3_K_S", C.LLAMA_FTYPE_MOSTLY_Q3_K_S}, {"Q3_K_M", C.LLAMA_FTYPE_MOSTLY_Q3_K_M}, {"Q3_K_L", C.LLAMA_FTYPE_MOSTLY_Q3_K_L},
	{"IQ4_XS", C.LLAMA_FTYPE_MOSTLY_IQ4_XS}, {"IQ4_NL", C.LLAMA_FTYPE_MOSTLY_IQ4_NL},
	{"Q4_0", C.LLAMA_FTYPE_MOSTLY_Q4_0}, {"Q4_1", C.LLAMA_FTYPE_MOSTLY_Q4_1},
	{"Q4_K_S", C.LLAMA_FTYPE_MOSTLY_Q4_K_S}, {"Q4_K_M", C.LLAMA_FTYPE_MOSTLY_Q4_K_M},
	{"Q5_0", C.LLAMA_FTYPE_MOSTLY_Q5_0}, {"Q5_1", C.LLAMA_FTYPE_MOSTLY_Q5_1},
	{"Q5_K_S", C.LLAMA_FTYPE_MOSTLY_Q5_K_S}, {"Q5_K_M", C.LLAMA_FTYPE_MOSTLY_Q5_K_M},
	{"Q6_K", C.LLAMA_FTYPE_MOSTLY_Q6_K}, {"Q8_0", C.LLAMA_FTYPE_MOSTLY_Q8_0},
	{"F16", C.LLAMA_FTYPE_MOSTLY_F16}, {"BF16", C.LLAMA_FTYPE_MOSTLY_BF16}, {"F32", C.LLAMA_FTYPE_ALL_F32},
}

// FileTypes are the names that QuantizeParams.Type takes.
func FileTypes() []string {
	names := make([]string, len(ftypes))
	for i, f := range ftypes {
		names[i] = f.name
	}
	return names
}

// QuantizeParams are the members of llama_model_quantize_params that Quern sets.
type QuantizeParams struct {
	Type            string // one of FileTypes
	Threads         int    // 0: all
	OutputType      string // ggml type name of output.weight, or ""
	EmbeddingType   string // ggml type name of token_embd.weight, or ""
	AllowRequantize bool
	Pure            bool
	KeepOutput      bool
	Imatrix         map[string][]float32 // importance of each column, by tensor name
	Progress        func(done, total int) (goOn bool)
}

// Quantize is llama_model_quantize. The header of in must have been vetted; out is written in place. ErrCancelled:
// Progress returned false.
func Quantize(in, out string, p QuantizeParams) error {
	Init()
	params := C.llama_model_quantize_default_params()
	ftype, err := fileType(p.Type)
	if err != nil {
		return err
	}
	params.ftype = ftype
	params.nthread = C.int32_t(p.Threads)
	params.allow_requantize = C.bool(p.AllowRequantize)
	params.pure = C.bool(p.Pure)
	params.quantize_output_tensor = C.bool(!p.KeepOutput)
	if params.output_tensor_type, err = tensorType(p.OutputType, params.output_tensor_type); err != nil {
		return err
	}
	if params.token_embedding_type, err = tensorType(p.EmbeddingType, params.token_embedding_type); err != nil {
		return err
	}
	imatrix, free := cImatrix(p.Imatrix)
	defer free()
	params.imatrix = imatrix

	stopped := false
	handle := cgo.NewHandle(func(done, total int) bool {
		stopped = stopped || p.Progress != nil && !p.Progress(done, total)
		return !stopped
	})
	defer handle.Delete()
	cin, cout := C.CString(in), C.CString(out)
	defer C.free(unsafe.Pointer(cin))
	defer C.free(unsafe.Pointer(cout))
	_, err = takeReport(C.qn_quantize(cin, cout, &params, C.uintptr_t(handle)))
	if stopped {
		return ErrCancelled
	}
	return err
}

func fileType(name string) (C.enum_llama_ftype, error) {
	for _, f := range ftypes {
		if strings.EqualFold(f.name, name) {
			return f.c, nil
		}
	}
	return 0, fmt.Errorf("quantization type %q: want one of %s", name, strings.Join(FileTypes(), ", "))
}

// tensorType is the ggml type of a name such as "q6_k" (ggml_type_name), or otherwise where the name is empty.
func tensorType(name string, otherwise C.enum_ggml_type) (C.enum_ggml_type, error) {
	if name == "" {
		return otherwise, nil
	}
	for t := C.enum_ggml_type(0); t < C.GGML_TYPE_COUNT; t++ {
		if C.ggml_blck_size(t) != 0 && strings.EqualFold(C.GoString(C.ggml_type_name(t)), name) {
			return t, nil
		}
	}
	return 0, fmt.Errorf("tensor type %q is not known to llama.cpp", name)
}

// cImatrix copies importance data to C memory: a list that ends with a NULL name.
func cImatrix(data map[string][]float32) (*C.struct_llama_model_imatrix_data, func()) {
	if len(data) == 0 {
		return nil, func() {}
	}
	size := C.size_t(unsafe.Sizeof(C.struct_llama_model_imatrix_data{}))
	list := unsafe.Slice((*C.struct_llama_model_imatrix_data)(C.calloc(C.size_t(len(data)+1), size)), len(data)+1)
	i := 0
	for name, values := range data {
		floats := (*C.float)(C.malloc(C.size_t(len(values)*4 + 1)))
		copy(unsafe.Slice((*float32)(unsafe.Pointer(floats)), len(values)), values)
		list[i].name, list[i].data, list[i].size = C.CString(name), floats, C.size_t(len(values))
		i++
	}
	return &list[0], func() {
		for _, entry := range list {
			C.free(unsafe.Pointer(entry.name))
			C.free(unsafe.Pointer(entry.data))
		}
		C.free(unsafe.Pointer(&list[0]))
	}
}
