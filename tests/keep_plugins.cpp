// In sanitizer builds every program has this: plugins (Open MPI's) stay loaded until the process ends, as a
// leak report cannot tell whose a leak is once the library is gone.
extern "C" int dlclose(void* /*library*/) {
  return 0;
}
