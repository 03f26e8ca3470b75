#include "tests/bench/onednn_product.h"

#include <memory>
#include <oneapi/dnnl/dnnl.hpp>

namespace ripstop {
namespace {

struct Product {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul primitive;
  std::unordered_map<int, dnnl::memory> arguments;
};

}  // namespace

Work onednn_product(Operands& operands, int64_t m, int64_t k, int64_t n) {
  const auto type =
      operands.dtype() == DType::kBFloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  const auto matrix = [&](int64_t rows, int64_t columns) {
    return dnnl::memory::desc({rows, columns}, type, dnnl::memory::format_tag::ab);
  };
  const auto a = matrix(m, k), b = matrix(k, n), c = matrix(m, n);
  auto product = std::make_shared<Product>();
#if DNNL_VERSION_MAJOR >= 3
  product->primitive = dnnl::matmul(dnnl::matmul::primitive_desc(product->engine, a, b, c));
#else
  product->primitive = dnnl::matmul({{a, b, c}, product->engine});
#endif
  const auto bind = [&](int argument, const dnnl::memory::desc& description, const Tensor& t) {
    product->arguments.emplace(argument, dnnl::memory(description, product->engine, t.data));
  };
  bind(DNNL_ARG_SRC, a, operands.tensor({m, k}));
  bind(DNNL_ARG_WEIGHTS, b, operands.tensor({k, n}));
  bind(DNNL_ARG_DST, c, operands.tensor({m, n}));
  return {[product] {
            product->primitive.execute(product->stream, product->arguments);
            product->stream.wait();
          },
          2.0 * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n)};
}

}  // namespace ripstop
