#include "model/ops/operand_checks.h"

namespace ripstop {

void check_rows(const Tensor& t, int64_t rows, int64_t columns, const char* what) {
  RIPSTOP_CHECK(!t.empty() && t.shape.dims() >= 1 && t.rows() == rows && t.cols() == columns,
                "{} is [{}, {}], expected [{}, {}]", what, t.rows(), t.cols(), rows, columns);
}
void check_dtype(const Tensor& t, DType dtype, const char* what) {
  RIPSTOP_CHECK(t.dtype == dtype, "{} is {}, expected {}", what, to_string(t.dtype), to_string(dtype));
}
static void check_contiguous(const Tensor& t, const char* what) {
  RIPSTOP_CHECK(t.is_contiguous(), "{} has rows {} apart, not {}", what, t.row_stride, t.cols());
}
void check_matrix(const Tensor& t, int64_t rows, int64_t columns, DType dtype, const char* what) {
  check_rows(t, rows, columns, what);
  check_contiguous(t, what);
  check_dtype(t, dtype, what);
}
void check_count(const Tensor& t, int64_t count, DType dtype, const char* what) {
  RIPSTOP_CHECK(!t.empty() && t.count() == count, "{} has {} elements, expected {}", what, t.count(), count);
  check_contiguous(t, what);
  check_dtype(t, dtype, what);
}
void check_operand(const Tensor& t, const char* what) {
  RIPSTOP_CHECK(t.dtype == DType::kFloat32 || t.dtype == DType::kBFloat16,
                "{} is {}, expected float32 or bfloat16", what, to_string(t.dtype));
}
void check_activation(const Tensor& t, const char* what) {
  check_operand(t, what);
  check_contiguous(t, what);
}
void check_index(const Tensor& t, int64_t count, const char* what) {
  check_count(t, count, DType::kInt32, what);
}
void check_float(const Tensor& t, int64_t count, const char* what) {
  check_count(t, count, DType::kFloat32, what);
}
void check_result(const Tensor& t, DType activation, const char* what) {
  RIPSTOP_CHECK(t.dtype == activation || t.dtype == DType::kFloat32, "{} is {}, expected {} or float32", what,
                to_string(t.dtype), to_string(activation));
}
void check_heads(const Heads& heads) {
  RIPSTOP_CHECK(
      heads.key_value > 0 && heads.query % heads.key_value == 0 && heads.size > 0 && heads.size % 2 == 0,
      "{} query heads, {} key-value heads of size {}", heads.query, heads.key_value, heads.size);
}
void check_documents(const Documents& documents) {
  check_dtype(documents.offset, DType::kInt32, "document offset");
  RIPSTOP_CHECK(documents.count >= 0 && documents.offset.count() > documents.count,
                "{} documents and room for {} offsets", documents.count, documents.offset.count());
}
void check_cache(const Tensor& qkv, const Tensor& slot, const Tensor& position, const Heads& heads,
                 const Tensor& cache) {
  check_heads(heads);
  check_activation(qkv, "qkv");
  check_rows(qkv, slot.count(), heads.row(), "qkv");
  check_index(slot, qkv.rows(), "slot");
  check_index(position, qkv.rows(), "position");
  check_dtype(cache, qkv.dtype, "cache");
  RIPSTOP_CHECK(
      cache.shape.dims() == 4 && cache.shape[2] == 2 && cache.shape[3] == heads.key_value * heads.size,
      "cache rows of {} x {}, expected 2 x {}", cache.shape[2], cache.shape[3], heads.key_value * heads.size);
}
void check_dropout(const Tensor& x, const DropoutBits& bits, const Tensor& y) {
  check_activation(x, "x");
  check_matrix(y, x.rows(), x.cols(), x.dtype, "y");
  RIPSTOP_CHECK(bits.first_row >= 0 && bits.first_column >= 0 && bits.sequence_length > 0,
                "dropout from row {} and column {} on, of sequences of {}", bits.first_row, bits.first_column,
                bits.sequence_length);
}
void check_slice(const VocabularySlice& slice, int64_t columns) {
  RIPSTOP_CHECK(slice.valid >= 0 && slice.valid <= columns, "{} valid of {} columns", slice.valid, columns);
}

}  // namespace ripstop
