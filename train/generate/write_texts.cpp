#include "train/generate/write_texts.h"

#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/dataset/kept_tokens.h"
#include "data/text/utf8.h"
#include "model/core/error.h"
#include "model/core/number.h"

namespace ripstop {

EncodedPrompt stored_prompt(const TokenDataset& dataset, int64_t example, int64_t longest) {
  const KeptTokens kept = keep_prompt(dataset, example, longest);
  const TargetSpan& last = dataset.spans(example).back();
  EncodedPrompt prompt{.tokens = read_kept(dataset, example, kept),
                       .separator_begin = kept_place(kept, last.cut_end),
                       .begin_tokens = kept_place(kept, last.cut_begin),
                       .cut_tokens = last.target_begin - kept.count(),
                       .is_conversation = dataset.header().kind == ExampleKind::kConversation};
  return prompt;
}

int64_t cut_document(EncodedPrompt& prompt, int64_t longest) {
  const int64_t surplus = std::max<int64_t>(std::ssize(prompt.tokens) - longest, 0);
  // A conversation too long for the context must not end an evaluation, so it keeps only its end.
  if (prompt.is_conversation && surplus > prompt.separator_begin - prompt.begin_tokens)
    prompt.begin_tokens = 0, prompt.separator_begin = surplus;
  const int64_t document = prompt.separator_begin - prompt.begin_tokens;
  if (surplus > document || longest < 1)
    throw Error(ExitCode::kUsage,
                fmt::format("the prompt has room for {} tokens, but has {} without its document", longest,
                            std::ssize(prompt.tokens) - document),
                "generate fewer tokens (--max-new-tokens)");
  const auto end = prompt.tokens.begin() + prompt.separator_begin;
  prompt.tokens.erase(end - surplus, end);
  prompt.separator_begin -= surplus;
  return surplus;
}

void require_room(const TokenDataset& dataset, int64_t longest) {
  EncodedPrompt prompt = stored_prompt(dataset, 0, longest);
  cut_document(prompt, longest);
}

int64_t count_cut_documents(const TokenDataset& dataset, int64_t examples, int64_t longest) {
  int64_t cut = 0;
  for (int64_t i = 0; i < examples; ++i)
    if (dataset.target_begin(i) - dataset.example_begin(i) > longest) ++cut;
  return cut;
}

void write_texts(InferenceModel& model, const Tokenizer& tokenizer, const GenerationSettings& settings,
                 NextDocumentPrompt next_prompt, TakeText take) {
  const InferenceOptions& limits = model.options();
  // A model may have more ids than its tokenizer has pieces.
  const int64_t ids = std::min(tokenizer.vocabulary_size(), model.model().config().vocab_size);
  GenerateOptions options{.slots = limits.slots,
                          .context = limits.context,
                          .prefill_tokens = limits.prefill_tokens,
                          .ids = ids,
                          .end_tokens = settings.eos_token_id,
                          .settings = settings,
                          .needs_logits = limits.all_logits};
  // A tokenizer may know no EOS: then end tokens in `settings`, for example from config.json, suffice.
  if ((tokenizer.has_eos() || options.end_tokens.empty()) && !options.ends(tokenizer.eos()))
    options.end_tokens.insert(std::ranges::lower_bound(options.end_tokens, tokenizer.eos()), tokenizer.eos());
  // End tokens may be ids above the pieces. Other ids in that range have no text, and are never generated.
  for (; options.ids <= options.end_tokens.back(); ++options.ids)
    if (!options.ends(static_cast<int32_t>(options.ids)))
      options.never.push_back(static_cast<int32_t>(options.ids));
  RIPSTOP_CHECK(options.never.empty() || limits.all_logits, "{} ids are not generated, without their logits",
                options.never.size());
  std::deque<int64_t> cut_tokens;  // cut tokens of the prompts whose texts are not finished
  generate(
      options,
      [&]() -> std::optional<NumberedPrompt> {
        std::optional<DocumentPrompt> prompt = next_prompt();
        if (!prompt) return std::nullopt;
        cut_tokens.push_back(prompt->encoded.cut_tokens +
                             cut_document(prompt->encoded, limits.context - settings.max_new_tokens));
        return NumberedPrompt{std::move(prompt->encoded.tokens), prompt->number};
      },
      {.best = [&](std::span<const SlotTokens> items) { return model.best(items, options.ids); },
       .logits = [&](std::span<const SlotTokens> items) { return model.logits(items); }},
      [&](const Continuation& continuation) {
        // Trims the space that the model writes after the separator.
        const std::string text = trimmed(tokenizer.decode(continuation.tokens), " \t\r\n");
        take({text, cut_tokens.front(), !continuation.ended});
        cut_tokens.pop_front();
      });
}

std::vector<std::string> merge_dealt(std::vector<std::vector<std::string>> dealt) {
  std::vector<std::string> merged;
  size_t given = 0;
  for (const auto& texts : dealt) given += texts.size();
  for (size_t i = 0; i < given; ++i) {
    std::vector<std::string>& texts = dealt[i % dealt.size()];
    // If a replica skipped a text, later texts would belong to other prompts.
    RIPSTOP_CHECK(i / dealt.size() < texts.size(), "replica {} has {} texts of {} over {} replicas",
                  i % dealt.size(), texts.size(), given, dealt.size());
    merged.push_back(std::move(texts[i / dealt.size()]));
  }
  return merged;
}

std::vector<std::string> gather_dealt(Communicator& world, int64_t tensor,
                                      const std::vector<std::string>& own) {
  // A tensor group's ranks have the same texts, so the first sends them. MessagePack keeps any byte.
  std::string packed;
  if (world.rank() % tensor == 0) nlohmann::json::to_msgpack(own, packed);
  const std::vector<std::string> all = world.all_gather_text(packed);
  std::vector<std::vector<std::string>> dealt;
  for (int64_t rank = 0; rank < std::ssize(all); rank += tensor)
    dealt.push_back(nlohmann::json::from_msgpack(all[static_cast<size_t>(rank)]));
  return merge_dealt(std::move(dealt));
}

std::vector<WrittenText> write_dealt_texts(InferenceModel& model, const Tokenizer& tokenizer,
                                           const GenerationSettings& settings, int64_t count,
                                           FunctionRef<DocumentPrompt(int64_t i)> prompt_of) {
  DeviceMesh& mesh = model.model().mesh();
  int64_t next = mesh.data_rank();
  std::vector<std::string> own;
  write_texts(
      model, tokenizer, settings,
      [&]() -> std::optional<DocumentPrompt> {
        if (next >= count) return std::nullopt;
        return prompt_of(std::exchange(next, next + mesh.data_ranks()));
      },
      [&](const WrittenText& written) {
        // at_limit as one character, cut_tokens, a space, the text
        own.push_back(fmt::format("{:d}{} {}", written.at_limit, written.cut_tokens, written.text));
      });
  std::vector<WrittenText> all;
  for (const std::string& text : gather_dealt(mesh.world(), mesh.sizes().tensor, own)) {
    const size_t space = text.find(' ');
    all.push_back(
        {text.substr(space + 1), parse_whole_number(text.substr(1, space - 1)).value(), text.front() == '1'});
  }
  return all;
}

}  // namespace ripstop
