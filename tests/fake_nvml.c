/* A libnvidia-ml.so.1 without a driver, for tests: what nvidia-ml-py calls of it, with the structures
 * of NVIDIA's nvml.h (CUDA 12). The environment says what is there, each time it is asked:
 *
 *   FAKE_NVML_GPUS   number of GPUs; without it the driver is not loaded
 *   FAKE_NVML_MIG    number of the GPU that is divided into two instances
 *   FAKE_NVML_LOST   number of the GPU that fell off the bus
 *   FAKE_NVML_MODE   compute mode of all
 *   FAKE_NVML_PID    a process with 1 GiB of GPU 0
 *
 * A handle is the number of a GPU, from 1 on; an instance is 100 times that, and its own from 0 on.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { SUCCESS, UNINITIALIZED, BAD_ARGUMENT, NOT_SUPPORTED, DENIED, ALREADY, NOT_FOUND, TOO_SMALL };
enum { NOT_LOADED = 9, LOST = 15 };
typedef uintptr_t Device;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory;
typedef struct { unsigned pid; unsigned long long bytes; unsigned instance, compute; } Process;

static int given(const char *name) {
    const char *value = getenv(name);
    return value && *value ? atoi(value) : -1;
}

int nvmlInitWithFlags(unsigned flags) { return given("FAKE_NVML_GPUS") < 0 ? NOT_LOADED : SUCCESS; }

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int result) { return "an error of the fake"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = given("FAKE_NVML_GPUS");
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    *device = index + 1;
    return (int)index == given("FAKE_NVML_LOST") ? LOST : SUCCESS;
}

int nvmlDeviceGetUUID(Device device, char *text, unsigned size) {
    snprintf(text, size, device < 100 ? "GPU-%08lx-fake" : "MIG-%08lx-fake", (unsigned long)device);
    return SUCCESS;
}

int nvmlDeviceGetName(Device device, char *text, unsigned size) {
    snprintf(text, size, device < 100 ? "Fake GPU" : "Fake GPU MIG 1g.4gb");
    return SUCCESS;
}

int nvmlDeviceGetComputeMode(Device device, unsigned *mode) {
    *mode = given("FAKE_NVML_MODE") < 0 ? 0 : given("FAKE_NVML_MODE");
    return device < 100 ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetMemoryInfo_v2(Device device, Memory *memory) {
    memory->total = device < 100 ? 8ull << 30 : 4ull << 30;
    memory->used = device == 1 && given("FAKE_NVML_PID") > 0 ? 1ull << 30 : 3ull << 20;
    return memory->version == (sizeof(Memory) | 2u << 24) ? SUCCESS : BAD_ARGUMENT;
}

int nvmlDeviceGetMigMode(Device device, unsigned *now, unsigned *after_a_reset) {
    *now = *after_a_reset = (int)device - 1 == given("FAKE_NVML_MIG");
    return given("FAKE_NVML_MIG") < 0 ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned *count) {
    *count = 7;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device *instance) {
    *instance = device * 100 + index;
    return index == 0 || index == 3 ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, Process *found) {
    int pid = device == 1 ? given("FAKE_NVML_PID") : -1;
    unsigned room = *count;
    *count = pid > 0;
    if (room < *count) return TOO_SMALL;
    if (pid > 0) found[0] = (Process){.pid = pid, .bytes = 1ull << 30};
    return SUCCESS;
}
