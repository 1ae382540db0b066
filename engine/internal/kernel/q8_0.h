#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

// qk_q8_0_supported says whether this processor has what the kernel needs.
bool qk_q8_0_supported(void);

// qk_q8_0_register hands the kernel to ggml's CPU backend. Once per process, before anything is computed.
void qk_q8_0_register(void);

#ifdef __cplusplus
}
#endif
