/* Tables of cosines and sines: see llm.h. The kinds are those of transformers' modeling_rope_utils. */
#include "llm.h"

/* Llama 3: long waves are slowed down, short ones stay, those between go over from one to the other. */
static double llama3(const json_t *p, double frequency) {
  double factor = config_number(p, "factor", 8), low = config_number(p, "low_freq_factor", 1),
         high = config_number(p, "high_freq_factor", 4),
         turns = config_number(p, "original_max_position_embeddings", 8192) * frequency / (2 * M_PI),
         smooth = fmin(fmax((turns - low) / (high - low), 0), 1);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

/* The dimension whose wave turns that often within the original length. */
static double yarn_dimension(const json_t *p, double turns, double theta, int64_t dimensions) {
  double original = config_number(p, "original_max_position_embeddings", 4096);
  return (double)dimensions * log(original / (turns * 2 * M_PI)) / (2 * log(theta));
}

static double yarn(const json_t *p, double frequency, double theta, int64_t dimensions, int64_t i) {
  double low = yarn_dimension(p, config_number(p, "beta_fast", 32), theta, dimensions),
         high = yarn_dimension(p, config_number(p, "beta_slow", 1), theta, dimensions);
  bool whole = !json_is_false(json_object_get(p, "truncate"));
  low = fmax(whole ? floor(low) : low, 0);
  high = fmin(whole ? ceil(high) : high, (double)(dimensions - 1));
  double ramp = fmin(fmax(((double)i - low) / (high > low ? high - low : 0.001), 0), 1);
  return frequency / config_number(p, "factor", 1) * ramp + frequency * (1 - ramp);
}

static double yarn_scale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

double make_angles(model *m, int64_t dimensions) {
  /* rope_parameters of today, or rope_scaling and rope_theta beside it of yesterday. */
  const json_t *today = json_object_get(m->config, "rope_parameters"),
               *p = json_is_object(today) ? today : json_object_get(m->config, "rope_scaling"),
               *type = json_object_get(p, "rope_type");
  const char *given = json_string_value(type ? type : json_object_get(p, "type")), *kind = given ? given : "default";
  bool is_yarn = !strcmp(kind, "yarn"), is_llama3 = !strcmp(kind, "llama3"), is_linear = !strcmp(kind, "linear");
  double theta = config_number(p, "rope_theta", config_number(m->config, "rope_theta", 10000)),
         factor = config_number(p, "factor", 1), mscale = config_number(p, "mscale", 0),
         all = config_number(p, "mscale_all_dim", 0), by_all = yarn_scale(factor, all),
         usual = mscale && all ? yarn_scale(factor, mscale) / by_all : yarn_scale(factor, 1),
         scale = is_yarn ? config_number(p, "attention_factor", usual) : 1, /* of cosines and sines */
      attention = is_yarn ? by_all * by_all : 1;
  int64_t n = dimensions / 2;
  if (!is_yarn && !is_llama3 && !is_linear && strcmp(kind, "default") != 0)
    fail("config.json: rope type '%s' is not known here, expected default, linear, llama3 or yarn", kind);
  if (m->cos)
    return attention; /* all layers have the same */
  m->cos = tensor(&m->kept, float32, SHAPE(m->longest, n));
  m->sin = tensor(&m->kept, float32, SHAPE(m->longest, n));
  for (int64_t i = 0; i < n; i++) {
    double frequency = pow(theta, -2 * (double)i / (double)dimensions);
    frequency = is_yarn     ? yarn(p, frequency, theta, dimensions, i)
                : is_llama3 ? llama3(p, frequency)
                            : frequency / (is_linear ? factor : 1);
    for (int64_t position = 0; position < m->longest; position++) {
      float angle = (float)position * (float)frequency; /* as transformers: the product in float32 */
      ((float *)m->cos->data)[position * n + i] = (float)(cos((double)angle) * scale);
      ((float *)m->sin->data)[position * n + i] = (float)(sin((double)angle) * scale);
    }
  }
  return attention;
}
