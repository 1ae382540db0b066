#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

// qk_supported says whether this processor has what the kernels need.
bool qk_supported(void);

// qk_register hands the kernels to ggml's CPU backend. Once per process, before anything is computed.
void qk_register(void);

#ifdef __cplusplus
}
#endif
