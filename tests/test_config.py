"""The configuration: defaults of recipes and networks, and every mistake named."""

import pytest

from senet_tf1 import config
from senet_tf1.errors import ConfigError


class TestDefaults:
    def test_they_are_the_original_s(self):
        settings = config.resolve({})
        expected = {
            "mode": "train", "arch": "se_resnext", "cardinality": 8, "depth": 64, "blocks": 3, "reduction_ratio": 4,
            "dataset": "cifar10", "data_dir": "data", "model_dir": "runs/se_resnext", "batch_size": 128,
            "eval_batch_size": 250, "train_epochs": 100, "train_steps": None, "num_gpus": 1, "device": "auto",
            "optimizer": "momentum", "learning_rate": 0.1, "lr_schedule": "step", "momentum": 0.9,
            "weight_decay": 5e-4, "seed": 0, "resume": "auto", "init_from": None, "clip_mode": "global_norm",
        }  # fmt: skip
        assert {name: getattr(settings, name) for name in expected} == expected

    def test_of_the_inception_networks(self):
        settings = config.resolve({"arch": "se_inception_v4"})
        assert settings.model_options() == {"reduction_ratio": 4, "dropout_rate": 0.2, "conv_bias": CONV_BIAS}
        assert settings.model_dir == "runs/se_inception_v4"

    def test_the_original_recipe(self):
        settings = config.resolve({"arch": "se_inception_resnet_v2", "recipe": "original"})
        assert (settings.learning_rate, settings.conv_bias, settings.clip_mode) == (0.1, 0.0, "none")
        assert settings.se_position == "block"

    def test_what_is_given_wins_over_recipe_and_network(self):
        given = {"arch": "se_inception_v4", "recipe": "original", "learning_rate": 0.5, "dropout_rate": 0.0}
        settings = config.resolve(given)
        assert (settings.learning_rate, settings.dropout_rate) == (0.5, 0.0)

    def test_it_is_frozen(self):
        with pytest.raises(AttributeError):
            config.resolve({}).seed = 1


CONV_BIAS = 1.0


class TestDerived:
    def test_steps(self):
        settings = config.resolve({})
        assert settings.steps_per_epoch(50000) == 391
        assert settings.total_steps(50000) == 39100
        assert config.resolve({"train_steps": 7, "train_epochs": 3}).total_steps(50000) == 7


class TestMistakes:
    @pytest.mark.parametrize(
        "given,message",
        [
            ({"arch": "vgg"}, "--arch=vgg: expected one of se_resnext, se_inception_v4, se_inception_resnet_v2"),
            ({"mode": "test"}, "--mode=test: expected one of train, evaluate, predict, info"),
            ({"batch_size": 0}, "--batch_size=0: expected at least 1"),
            ({"momentum": 1.5}, "--momentum=1.5: expected at most 0.9999"),
            ({"learning_rate": float("nan")}, "--learning_rate=nan: expected a finite number"),
            ({"seed": 2**31}, "--seed=2147483648: expected at most"),
            ({"batch_size": "12"}, "--batch_size='12': expected int"),
            ({"batch_size": True}, "--batch_size=True: expected int"),
            ({"data_dir": ""}, "--data_dir is empty"),
            ({"num_gpus": 0}, "--num_gpus=0: expected at least 1"),
            ({"speed": 1}, "unknown settings: speed"),
            ({"arch": "se_inception_v4", "cardinality": 4}, "se_inception_v4 has no such option; se_resnext have"),
            ({"conv_bias": 1.0}, "se_resnext has no such option"),
            ({"clip_value": 2.0, "clip_mode": "none"}, "--clip_value=2.0: needs a --clip_mode"),
            ({"json": True}, "--json: only --mode=predict"),
        ],
    )
    def test_each_is_named_with_what_is_expected(self, given, message):
        with pytest.raises(ConfigError, match=message):
            config.resolve(given)

    def test_all_at_once(self):
        with pytest.raises(ConfigError) as caught:
            config.resolve({"batch_size": 0, "optimizer": "adam", "weight_decay": -1.0})
        assert len(str(caught.value).splitlines()) == 3


class TestDifferences:
    def test_of_the_network(self):
        recorded = config.resolve({"depth": 8})._asdict()
        found = config.network_differences(config.resolve({"batch_size": 4}), recorded)
        assert found == ["--depth was 8 in this run and is now 64"]

    def test_of_anything_else(self):
        recorded = config.resolve({"depth": 8, "train_epochs": 3})._asdict()
        found = config.other_differences(config.resolve({"batch_size": 4}), recorded)
        assert found == ["--batch_size was 128 in this run and is now 4"]
