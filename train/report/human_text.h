#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "train/report/run_account.h"

namespace ripstop {

struct StepMetrics;

/// "42s", "12m30s", "3h12m", "2d04h"; "?" if `seconds` is negative, not finite or above 1e10.
std::string duration_text(double seconds);

/// `time`, in seconds since 1970, in the local time zone or in UTC: "2026-11-23 05:35:00 CET". `format`: as
/// for strftime(). "?" unless |time| < 1e11.
std::string clock_text(double time, const char* format = "%F %T %Z", bool utc = false);

/// "512 B", "61.3 MiB", "64.0 GiB".
std::string bytes_text(int64_t bytes);

/// `value`, or NaN without a sign: fmt writes a negative NaN as "-nan".
double without_nan_sign(double value);

/// exp(`loss`), with `loss` in nats: "23.107"; "3.1e+42" from a million on; "inf" or "nan".
std::string perplexity_text(double loss);

/// "1 example", "3 micro-batches". `noun` is the singular.
std::string counted(int64_t number, const std::string& noun);

/// "1230", "12.3k", "0.0012"; at most `digits` significant digits.
std::string number_text(double value, int digits = 4);

/// number_text(), but "<0.001" for values between 0 and 0.001.
std::string amount_text(double value);

/// "12.3 s"; below a millisecond "12.3 us".
std::string seconds_text(double seconds);

/// "1.5 node-hours, 0.62 kWh (413.3 W a node, 1.2M tokens a kWh)"; "" without an account.
std::string account_text(const std::optional<RunAccount>& account);

/// The sizes for people, then the parts that LLaMA 2 lacks, as keys of [model]: "30 layers, hidden 896,
/// feed-forward 4864, 14 heads (2 key-value), 151936 pieces, tied, attention_bias qkv". The sizes must be
/// valid.
std::string model_text(const ModelConfig& model);

/// A step for people, without the line end:
///   step 20/500  loss 2.3187  grad_norm 0.41  lr 1.98e-05  118400 tok/s  mfu 41.2%  61.3/64.0 GiB  eta 3h12m
/// mfu is left out if it is not known, and the memory limit if there is none.
std::string step_line(const StepMetrics& step, int64_t steps, std::optional<int64_t> memory_limit_bytes,
                      double eta_seconds);

/// The live line: step 123/500  loss 2.3187  118400 tok/s  eta 3h12m
std::string live_step_line(const StepMetrics& step, int64_t steps, double eta_seconds);

/// `paths` without the folders that all of them begin with. Keeps at least the last `kept` names of each.
std::vector<std::string> short_paths(const std::vector<std::string>& paths, size_t kept = 1);

}  // namespace ripstop
