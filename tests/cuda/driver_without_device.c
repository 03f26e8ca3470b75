// A libcuda.so.1 for machines without a GPU. It loads every kernel and runs none. With it, cuDNN makes
// complete execution plans (heuristics, checks, run-time compilation) for a GPU that the caller describes.
// Test programs find it by LD_LIBRARY_PATH. Never install it.
#include <dlfcn.h>
#include <stddef.h>

enum { kSuccess = 0, kNoDevice = 100, kNotFound = 500, kVersion = 13000 };

int cuInit(unsigned flags) {
  (void)flags;
  return kNoDevice;
}
int cuDriverGetVersion(int* version) {
  *version = kVersion;
  return kSuccess;
}
int cuDeviceGetCount(int* count) {
  *count = 0;
  return kSuccess;
}
int cuGetErrorString(int error, const char** text) {
  (void)error;
  *text = "no device";
  return kSuccess;
}
int cuGetErrorName(int error, const char** text) {
  return cuGetErrorString(error, text);
}
int cuGetExportTable(const void** table, const void* id) {
  (void)id;
  *table = NULL;
  return kNotFound;
}

// Handles: addresses that nobody dereferences.
static char library, kernel, function;
int cuLibraryLoadData(void** handle) {
  *handle = &library;
  return kSuccess;
}
int cuModuleLoadData(void** handle) {
  return cuLibraryLoadData(handle);
}
int cuModuleLoadDataEx(void** handle) {
  return cuLibraryLoadData(handle);
}
int cuLibraryGetKernel(void** handle) {
  *handle = &kernel;
  return kSuccess;
}
int cuModuleGetFunction(void** handle) {
  *handle = &function;
  return kSuccess;
}
int cuKernelGetFunction(void** handle) {
  return cuModuleGetFunction(handle);
}
int cuKernelGetAttribute(int* value) {
  *value = 0;
  return kSuccess;
}
int cuFuncGetAttribute(int* value) {
  return cuKernelGetAttribute(value);
}

static int nothing(void) {
  return kSuccess;
}
static void* symbol(const char* name) {
  void* self = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  void* found = self == NULL ? NULL : dlsym(self, name);
  return found == NULL ? (void*)nothing : found;
}
int cuGetProcAddress(const char* name, void** address) {
  *address = symbol(name);
  return kSuccess;
}
int cuGetProcAddress_v2(const char* name, void** address, int version, unsigned long flags, int* status) {
  (void)version;
  (void)flags;
  *address = symbol(name);
  if (status != NULL) *status = 0;
  return kSuccess;
}

// All other functions of the driver, as listed in the toolkit's stub library.
#define NOTHING(name) \
  int name(void) {    \
    return kSuccess;  \
  }
#include "driver_functions.h"
